// What the streams of the host backend run.
#pragma once

#include "lib/device/backend.hpp"

namespace lockstep::internal::host_kernels {

void reduce(const ReduceJob& job);
void convert(const ConvertJob& job);
void quantise(const QuantiseJob& job);
void dequantise(const DequantiseJob& job);
/// A wait polls: first busily, then with pauses, because many streams share few cores.
void operate(std::span<const WordOperation> operations);
/// Between one look at what another rank writes and the next.
void pause_poll(int polls);

}  // namespace lockstep::internal::host_kernels
