// Starting the kernels (kernels.hpp): how many blocks each gets, and with which arguments.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "lib/reduce/cuda/convert.hpp"
#include "lib/reduce/cuda/cuda_errors.hpp"
#include "lib/reduce/cuda/kernel_table.hpp"
#include "lib/reduce/cuda/kernels.hpp"
#include "lib/reduce/cuda/load_kernel.hpp"
#include "lib/reduce/cuda/plan.hpp"

namespace lockstep::internal::cuda {
namespace {

constexpr std::size_t kWarp = 32;

const KernelTable& kernels() {
  static const KernelTable table = [] {
    KernelTable all;
    add_float_kernels(all);
    add_small_float_kernels(all);
    add_integer_kernels(all);
    add_convert_kernels(all);
    return all;
  }();
  return table;
}

/// `useful`: threads that would have something to do.
template <typename Arguments>
Status launch(const void* kernel, Arguments arguments, std::size_t useful, const Place& place) {
  if (useful == 0) return Status();
  const auto most =
      static_cast<std::size_t>(place.multiprocessors) * static_cast<std::size_t>(place.residency.at(kernel));
  const auto blocks =
      static_cast<unsigned>(std::clamp((useful + kThreads - 1) / kThreads, std::size_t{1}, most));
  void* list[] = {&arguments};
  return cuda_status(::cudaLaunchKernel(kernel, dim3(blocks), dim3(kThreads), list, 0,
                                        static_cast<cudaStream_t>(place.stream)),
                     "starting a kernel");
}

Status load(const void* kernel, Residency& all) {
  LOCKSTEP_RETURN_IF_ERROR(load_kernel(kernel));
  int blocks = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      cuda_status(::cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, 0),
                  "asking how many blocks of a kernel run at once"));
  all[kernel] = std::max(1, blocks);
  return Status();
}

std::size_t blocks_of(std::size_t count, std::size_t block) { return (count + block - 1) / block; }

}  // namespace

Status start(const ReduceJob& job, const Place& place) {
  Result<std::vector<PlannedPass>> passes = plan_passes(job);
  if (!passes.ok()) return passes.status();
  for (const PlannedPass& pass : *passes) {
    const PassArguments& a = pass.arguments;
    const std::size_t useful = a.vectors > 0 ? a.vectors : a.count;
    LOCKSTEP_RETURN_IF_ERROR(launch(kernels().reduce.at({pass.type, pass.op}), a, useful, place));
  }
  return Status();
}

Status start(const ConvertJob& job, const Place& place) {
  const bool narrows = job.from == DataType::f32;
  const void* const kernel = narrows ? kernels().narrow.at(job.to) : kernels().widen.at(job.from);
  return launch(kernel, ConvertArguments{job.input, job.output, job.count, job.factor}, (job.count + 3) / 4,
                place);
}

Status start(const QuantiseJob& job, const Place& place) {
  BlockArguments arguments{};
  arguments.input = job.input;
  arguments.scales = job.scales;
  arguments.codes = job.codes;
  arguments.count = job.count;
  arguments.block = job.block;
  return launch(kernels().quantise.at(job.type), arguments, blocks_of(job.count, job.block) * kWarp, place);
}

Status start(const DequantiseJob& job, const Place& place) {
  BlockArguments arguments{};
  arguments.scales = const_cast<float*>(job.scales);  // Only read.
  arguments.codes = const_cast<void*>(job.codes);
  arguments.count = job.count;
  arguments.block = job.block;
  arguments.factor = job.factor;
  arguments.output = job.output;
  arguments.add = job.add;
  return launch(kernels().dequantise.at(job.type), arguments, blocks_of(job.count, job.block) * kWarp, place);
}

Result<Residency> load_kernels() {
  Residency all;
  for (const auto& [key, kernel] : kernels().reduce) LOCKSTEP_RETURN_IF_ERROR(load(kernel, all));
  for (const auto* family :
       {&kernels().narrow, &kernels().widen, &kernels().quantise, &kernels().dequantise}) {
    for (const auto& [type, kernel] : *family) LOCKSTEP_RETURN_IF_ERROR(load(kernel, all));
  }
  return all;
}

}  // namespace lockstep::internal::cuda
