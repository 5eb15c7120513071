#include "ddp/device/gradient_pass.hpp"
#include "lib/reduce/cuda/load_kernel.hpp"

namespace lockstep::internal::gradient_pass {
namespace {

__device__ std::uint64_t this_thread() { return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::uint64_t all_threads() { return std::uint64_t{gridDim.x} * blockDim.x; }

__global__ void scrub_kernel(Arguments a) { scrub(a, this_thread(), all_threads()); }
__global__ void square_kernel(Arguments a) { square(a, this_thread()); }
__global__ void scale_kernel(Arguments a) { scale(a, this_thread(), all_threads()); }
__global__ void hash_kernel(Arguments a) { hash(a, this_thread(), all_threads()); }
__global__ void fold_kernel(Arguments a) {
  fold(a, threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) finish_fold(a, [](double x) { return sqrt(x); });
}

/// Enough for any GPU where the threads have no fixed number.
constexpr unsigned kManyBlocks = 1024;

/// Gives the error of this start: cudaGetLastError() would give one that a call of the program has left.
int start(void (*kernel)(Arguments), unsigned blocks, unsigned threads, const void* arguments, void* stream) {
  void* list[] = {const_cast<void*>(arguments)};
  return static_cast<int>(::cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks),
                                             dim3(threads), list, 0, static_cast<cudaStream_t>(stream)));
}

}  // namespace

int scrub_on_cuda(const void* arguments, void* stream) {
  return start(scrub_kernel, kManyBlocks, kThreads, arguments, stream);
}
int square_on_cuda(const void* arguments, void* stream) {
  return start(square_kernel, kBlocks, kThreads, arguments, stream);
}
int fold_on_cuda(const void* arguments, void* stream) {
  return start(fold_kernel, 1, kFolds, arguments, stream);
}
int scale_on_cuda(const void* arguments, void* stream) {
  return start(scale_kernel, kManyBlocks, kThreads, arguments, stream);
}
int hash_on_cuda(const void* arguments, void* stream) {
  return start(hash_kernel, kManyBlocks, kThreads, arguments, stream);
}

Status load_on_cuda() {
  for (const auto kernel : {scrub_kernel, square_kernel, scale_kernel, hash_kernel, fold_kernel})
    LOCKSTEP_RETURN_IF_ERROR(cuda::load_kernel(reinterpret_cast<const void*>(kernel)));
  return {};
}

}  // namespace lockstep::internal::gradient_pass
