// Starting the kernels. Only where CUDA was found.
#pragma once

#include "lib/reduce/job.hpp"

namespace lockstep::internal::cuda {

/// Where a kernel runs: on `stream` (a cudaStream_t) of the selected device, with enough blocks for its
/// multiprocessors.
struct Place {
  void* stream;
  int multiprocessors;
};

/// Start what a checked job needs. Ok when it is on the stream.
Status start(const ReduceJob& job, const Place& place);
Status start(const ConvertJob& job, const Place& place);
Status start(const QuantiseJob& job, const Place& place);
Status start(const DequantiseJob& job, const Place& place);

/// Loads every kernel to the selected device, before any is started.
Status load_kernels();

}  // namespace lockstep::internal::cuda
