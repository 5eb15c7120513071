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

}  // namespace lockstep::internal::host_kernels
