// One turn of one contender: an operation at one size, checked and timed.
#pragma once

#include <string>

#include "bench/peers/board.hpp"
#include "bench/peers/call.hpp"
#include "bench/peers/contender.hpp"

namespace peers {

/// Carries out the order and gives the answer for the driver, equal on all ranks:
///   "ok ITERATIONS MEDIAN_US P95_US MIN_US ALGORITHM", "wrong ELEMENTS" or "unsupported".
/// An iteration's time is that of its slowest rank. Buffers are allocated for this turn, and two sets of them
/// take turns, so that neither the placement of pages nor one warm buffer decides. The first and the last
/// operation of a turn are checked to the last element; those between run on zeros.
std::string run_turn(Contender& contender, Board& board, const Order& order);

}  // namespace peers
