// Checking results where they lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/data.hpp"
#include "lockstep/device.hpp"

namespace lockstep::bench {

/// Elements of `output` (device memory) that differ from what they must be. Waits for the stream.
std::uint64_t count_wrong_on_device(const Data& data, const Call& call, std::uint64_t round,
                                    const std::byte* output, Stream stream);

}  // namespace lockstep::bench
