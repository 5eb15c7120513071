// The arithmetic on a GPU: products by cuBLAS, the rest by kernels of a few lines.
#include "examples/device/cublas_handle.hpp"
#include "examples/digits/device/compute.hpp"

namespace digits {
namespace {

constexpr unsigned kThreads = 256;

unsigned blocks_for(std::size_t count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }
__device__ std::size_t this_thread() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__global__ void add_bias_kernel(float* out, const float* bias, std::size_t count, std::size_t columns,
                                bool rectify) {
  const std::size_t i = this_thread();
  if (i >= count) return;
  const float sum = out[i] + bias[i % columns];
  out[i] = rectify ? fmaxf(sum, 0.0f) : sum;
}

/// A thread a column.
__global__ void sum_rows_kernel(const float* matrix, std::size_t rows, std::size_t columns, float* out) {
  const std::size_t j = this_thread();
  if (j >= columns) return;
  float sum = 0;
  for (std::size_t i = 0; i < rows; ++i) sum += matrix[i * columns + j];
  out[j] = sum;
}

__global__ void mask_kernel(float* delta, const float* activations, std::size_t count) {
  const std::size_t i = this_thread();
  if (i < count && !(activations[i] > 0.0f)) delta[i] = 0.0f;
}

/// A thread a row.
__global__ void softmax_kernel(const float* logits, const int* labels, std::size_t rows, std::size_t classes,
                               float* gradient, float* losses) {
  const std::size_t i = this_thread();
  if (i >= rows) return;
  const float* row = logits + i * classes;
  float* out = gradient + i * classes;
  float largest = row[0], sum = 0;
  for (std::size_t j = 1; j < classes; ++j) largest = fmaxf(largest, row[j]);
  for (std::size_t j = 0; j < classes; ++j) sum += out[j] = expf(row[j] - largest);
  const float share = 1.0f / static_cast<float>(rows);
  for (std::size_t j = 0; j < classes; ++j) out[j] *= share / sum;
  out[labels[i]] -= share;
  losses[i] = logf(sum) - (row[labels[i]] - largest);
}

__global__ void descend_kernel(float* value, float* velocity, const float* gradient, std::size_t count,
                               float rate, float momentum) {
  const std::size_t i = this_thread();
  if (i >= count) return;
  velocity[i] = momentum * velocity[i] + gradient[i];
  value[i] -= rate * velocity[i];
}

class CudaCompute final : public Compute {
 public:
  explicit CudaCompute(lockstep::Stream stream)
      : stream_(static_cast<cudaStream_t>(stream)), cublas_(stream_) {}

  void multiply(const DeviceMatrix& a, const DeviceMatrix& b, float* out) override {
    const std::size_t m = a.transposed ? a.columns : a.rows, k = a.transposed ? a.rows : a.columns;
    const std::size_t n = b.transposed ? b.rows : b.columns;
    const float one = 1, zero = 0;
    const auto operation = [](const DeviceMatrix& x) { return x.transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
    examples::check(cublasSgemm(cublas_.get(), operation(b), operation(a), static_cast<int>(n),
                                static_cast<int>(m), static_cast<int>(k), &one, b.data,
                                static_cast<int>(b.columns), a.data, static_cast<int>(a.columns), &zero, out,
                                static_cast<int>(n)));
  }
  void add_bias(float* out, const float* bias, std::size_t rows, std::size_t columns, bool rectify) override {
    const std::size_t count = rows * columns;
    add_bias_kernel<<<blocks_for(count), kThreads, 0, stream_>>>(out, bias, count, columns, rectify);
    examples::check_launch();
  }
  void sum_rows(const float* matrix, std::size_t rows, std::size_t columns, float* out) override {
    sum_rows_kernel<<<blocks_for(columns), kThreads, 0, stream_>>>(matrix, rows, columns, out);
    examples::check_launch();
  }
  void mask(float* delta, const float* activations, std::size_t count) override {
    mask_kernel<<<blocks_for(count), kThreads, 0, stream_>>>(delta, activations, count);
    examples::check_launch();
  }
  void softmax(const float* logits, const int* labels, std::size_t rows, std::size_t classes, float* gradient,
               float* losses) override {
    softmax_kernel<<<blocks_for(rows), kThreads, 0, stream_>>>(logits, labels, rows, classes, gradient,
                                                               losses);
    examples::check_launch();
  }
  void descend(float* value, float* velocity, const float* gradient, std::size_t count, float rate,
               float momentum) override {
    descend_kernel<<<blocks_for(count), kThreads, 0, stream_>>>(value, velocity, gradient, count, rate,
                                                                momentum);
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

}  // namespace digits
