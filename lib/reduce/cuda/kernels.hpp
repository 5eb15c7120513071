// Starting the kernels. Only where CUDA was found.
#pragma once

#include <map>

#include "lib/reduce/job.hpp"

namespace lockstep::internal::cuda {

/// Of each kernel how many blocks run at once on a multiprocessor of one device. More would be a second wave,
/// which leaves most of the device idle.
using Residency = std::map<const void*, int>;

/// Where a kernel runs: on `stream` (a cudaStream_t) of the selected device, with enough blocks for its
/// multiprocessors.
struct Place {
  void* stream;
  int multiprocessors;
  const Residency& residency;
};

/// Start what a checked job needs. Ok when it is on the stream.
Status start(const ReduceJob& job, const Place& place);
Status start(const ConvertJob& job, const Place& place);
Status start(const QuantiseJob& job, const Place& place);
Status start(const DequantiseJob& job, const Place& place);

/// Loads every kernel to the selected device, before any is started.
Result<Residency> load_kernels();

}  // namespace lockstep::internal::cuda
