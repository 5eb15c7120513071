#include "bench/device/floors/spin.hpp"

namespace lockstep::bench {
namespace {

constexpr unsigned long long kLongestNanoseconds = 2'000'000'000;
/// A wait that is given up ends those behind it as well, and shows in the word's last value.
constexpr std::uint32_t kFarAhead = 1u << 30;

__device__ unsigned long long now() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

__global__ void spin(SpinArguments a) {
  volatile std::uint32_t* const word = a.word;
  const unsigned long long end = now() + kLongestNanoseconds;
  while (static_cast<std::int32_t>(*word - a.wanted) < 0) {
    if (now() < end) continue;
    *word = a.wanted + kFarAhead;
    return;
  }
  __threadfence_system();
  *word = a.wanted + 1;
}

}  // namespace

int spin_on_cuda(const void* arguments, void* stream) {
  spin<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(*static_cast<const SpinArguments*>(arguments));
  return static_cast<int>(cudaGetLastError());
}

}  // namespace lockstep::bench
