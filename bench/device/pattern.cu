#include "bench/device/pattern.hpp"

namespace lockstep::bench {
namespace {

constexpr int kThreads = 256;
constexpr std::uint64_t kMostBlocks = 1024;  // Several for each multiprocessor of any GPU.

__global__ void pattern(PatternArguments a) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t wrong = run_pattern(a, thread, std::uint64_t{gridDim.x} * blockDim.x);
  if (wrong > 0) atomicAdd(reinterpret_cast<unsigned long long*>(a.wrong), wrong);
}

}  // namespace

int pattern_on_cuda(const void* arguments, void* stream) {
  const auto& a = *static_cast<const PatternArguments*>(arguments);
  const std::uint64_t needed = (a.elements + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(needed < kMostBlocks ? needed : kMostBlocks);
  pattern<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(a);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace lockstep::bench
