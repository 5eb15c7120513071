// The arithmetic on a GPU: products by cuBLAS, the rest by a kernel a body.
#include "examples/device/cublas_handle.hpp"
#include "examples/gpt/device/compute.hpp"

namespace gpt {
namespace {

constexpr unsigned kThreads = 128;

template <class OneBody>
__global__ void kernel(OneBody body, std::size_t threads) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < threads) body(i);
}

class CudaCompute final : public Compute {
 public:
  explicit CudaCompute(lockstep::Stream stream)
      : stream_(static_cast<cudaStream_t>(stream)), cublas_(stream_) {}

  void multiply_add(const examples::MatrixView& a, const examples::MatrixView& b, float* out) override {
    const float one = 1;
    const auto transposed = [](const examples::MatrixView& m) { return m.column_stride != 1; };
    const auto stride = [&](const examples::MatrixView& m) {
      return static_cast<int>(transposed(m) ? m.column_stride : m.row_stride);
    };
    const auto operation = [&](const examples::MatrixView& m) {
      return transposed(m) ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    examples::check(cublasSgemm(cublas_.get(), operation(b), operation(a), static_cast<int>(b.columns),
                                static_cast<int>(a.rows), static_cast<int>(a.columns), &one, b.data,
                                stride(b), a.data, stride(a), &one, out, static_cast<int>(b.columns)));
  }

  void run(const Body& any, std::size_t threads) override {
    if (threads == 0) return;
    const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
    std::visit([&](const auto& body) { kernel<<<blocks, kThreads, 0, stream_>>>(body, threads); }, any);
    examples::check_launch();
  }

 private:
  const cudaStream_t stream_;
  const examples::CublasHandle cublas_;
};

}  // namespace

std::unique_ptr<Compute> make_cuda_compute(lockstep::Stream stream) {
  return std::make_unique<CudaCompute>(stream);
}

}  // namespace gpt
