// Kernels of the conversions between f32 and the types of the wire.
#include "lib/reduce/cuda/convert.hpp"
#include "lib/reduce/cuda/kernel_table.hpp"

namespace lockstep::internal::cuda {
namespace {

constexpr unsigned kWarp = 32;

/// A warp shares a block of elements.
struct Warp {
  __device__ unsigned lane() const { return threadIdx.x % kWarp; }
  __device__ unsigned size() const { return kWarp; }
  __device__ std::uint32_t max(std::uint32_t mine) const { return __reduce_max_sync(0xffffffff, mine); }
};

__device__ std::size_t thread() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ std::size_t threads() { return std::size_t{gridDim.x} * blockDim.x; }

template <class Format>
__global__ void __launch_bounds__(kThreads) narrow_kernel(const __grid_constant__ ConvertArguments a) {
  narrow_part<Format>(a, thread(), threads());
}

template <class Format>
__global__ void __launch_bounds__(kThreads) widen_kernel(const __grid_constant__ ConvertArguments a) {
  widen_part<Format>(a, thread(), threads());
}

template <class Format>
__global__ void __launch_bounds__(kThreads) quantise_kernel(const __grid_constant__ BlockArguments a) {
  const std::size_t blocks = (a.count + a.block - 1) / a.block;
  for (std::size_t b = thread() / kWarp; b < blocks; b += threads() / kWarp)
    quantise_block<Format>(a, b, Warp());
}

template <class Format>
__global__ void __launch_bounds__(kThreads) dequantise_kernel(const __grid_constant__ BlockArguments a) {
  const std::size_t blocks = (a.count + a.block - 1) / a.block;
  for (std::size_t b = thread() / kWarp; b < blocks; b += threads() / kWarp) {
    dequantise_block<Format>(a, b, Warp());
  }
}

template <typename Arguments>
const void* address(void (*kernel)(Arguments)) {
  return reinterpret_cast<const void*>(kernel);
}

struct AddNarrow {
  KernelTable* table;
  template <class Format>
  void operator()(DataType type) const {
    table->narrow[type] = address(&narrow_kernel<Format>);
    table->widen[type] = address(&widen_kernel<Format>);
  }
};

struct AddQuantised {
  KernelTable* table;
  template <class Format>
  void operator()(DataType type) const {
    table->quantise[type] = address(&quantise_kernel<Format>);
    table->dequantise[type] = address(&dequantise_kernel<Format>);
  }
};

}  // namespace

void add_convert_kernels(KernelTable& table) {
  list_narrow(AddNarrow{&table});
  list_quantised(AddQuantised{&table});
}

}  // namespace lockstep::internal::cuda
