// Collectives drawn at random, alike by all ranks that draw from equal streams.
#pragma once

#include <random>

#include "tests/engine/reference.hpp"

namespace lockstep::internal {

/// Any collective, type, operator that the type has, and root; without a count and a seed.
CollectiveCase draw_case(std::mt19937_64& random, int world);

/// Bytes of the larger of the message's two ends for each of its count.
std::size_t bytes_of_count(const CollectiveCase& c);

/// A count of at most so many bytes. Every order of magnitude is equally likely, and so most are small.
std::size_t draw_count(std::mt19937_64& random, const CollectiveCase& c, std::size_t most_bytes);

}  // namespace lockstep::internal
