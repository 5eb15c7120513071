// The arithmetic of the host backend, whose device memory is the host's: by the caller, after the stream.
#include <algorithm>
#include <vector>

#include "examples/digits/device/compute.hpp"
#include "examples/digits/mlp.hpp"
#include "examples/matrix/matrix.hpp"
#include "lockstep/device_runtime.hpp"

namespace digits {
namespace {

examples::MatrixView view(const DeviceMatrix& m) {
  const examples::MatrixView stored = examples::row_major(m.data, m.rows, m.columns);
  return m.transposed ? examples::transposed(stored) : stored;
}

class HostCompute final : public Compute {
 public:
  explicit HostCompute(lockstep::Stream stream) : stream_(stream) {}

  void multiply(const DeviceMatrix& a, const DeviceMatrix& b, float* out) override {
    lockstep::device::synchronize(stream_);
    std::fill_n(out, view(a).rows * view(b).columns, 0.0f);
    examples::multiply_add(view(a), view(b), out);
  }
  void add_bias(float* out, const float* bias, std::size_t rows, std::size_t columns, bool rectify) override {
    lockstep::device::synchronize(stream_);
    for (std::size_t i = 0; i < rows * columns; ++i) {
      const float sum = out[i] + bias[i % columns];
      out[i] = rectify ? std::max(sum, 0.0f) : sum;
    }
  }
  void sum_rows(const float* matrix, std::size_t rows, std::size_t columns, float* out) override {
    lockstep::device::synchronize(stream_);
    std::fill_n(out, columns, 0.0f);
    for (std::size_t i = 0; i < rows * columns; ++i) out[i % columns] += matrix[i];
  }
  void mask(float* delta, const float* activations, std::size_t count) override {
    lockstep::device::synchronize(stream_);
    for (std::size_t i = 0; i < count; ++i) delta[i] = activations[i] > 0.0f ? delta[i] : 0.0f;
  }
  void softmax(const float* logits, const int* labels, std::size_t rows, std::size_t classes, float* gradient,
               float* losses) override {
    lockstep::device::synchronize(stream_);
    std::vector<float> row_gradient;
    for (std::size_t i = 0; i < rows; ++i) {
      losses[i] = static_cast<float>(
          softmax_cross_entropy({logits + i * classes, classes}, {labels + i, 1}, row_gradient));
      for (std::size_t j = 0; j < classes; ++j) {
        gradient[i * classes + j] = row_gradient[j] / static_cast<float>(rows);
      }
    }
  }
  void descend(float* value, float* velocity, const float* gradient, std::size_t count, float rate,
               float momentum) override {
    lockstep::device::synchronize(stream_);
    for (std::size_t i = 0; i < count; ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i];
      value[i] -= rate * velocity[i];
    }
  }

 private:
  const lockstep::Stream stream_;
};

}  // namespace

std::unique_ptr<Compute> make_host_compute(lockstep::Stream stream) {
  return std::make_unique<HostCompute>(stream);
}

}  // namespace digits
