// What an operation really moved, and over what: the byte counters of the links.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "bench/board.hpp"

namespace lockstep::bench {

/// What links are made of. Shared memory that programs address themselves has no counters.
inline constexpr std::array<std::string_view, 4> kMedia{"shm", "tcp", "ucx", "verbs"};
/// Bytes by medium.
using Traffic = std::array<std::uint64_t, kMedia.size()>;

/// What this rank's links have sent so far. Called while no operation is under way.
Traffic sent_so_far(const Communicator& communicator);

/// What all ranks have sent between two looks of each.
Traffic sent_by_all(Board& board, const Traffic& before, const Traffic& after);

/// "shm 25.0M, tcp 12.5M"; empty where nothing was sent.
std::string text_of(const Traffic& traffic);

}  // namespace lockstep::bench
