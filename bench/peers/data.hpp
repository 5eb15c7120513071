// Inputs whose sums are exact in any order, in bf16 to 8 ranks, and what every operation must make of them.
#pragma once

#include <cstdint>

#include "bench/peers/call.hpp"

namespace peers {

/// Fills this rank's input; `salt` tells one check from another.
void fill(const Call& call, void* input, unsigned salt);

/// Elements of this rank's output that are not what the inputs of all ranks make them.
std::uint64_t count_wrong(const Call& call, const void* output, unsigned salt);

}  // namespace peers
