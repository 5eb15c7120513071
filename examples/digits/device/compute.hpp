// The arithmetic of the network on device memory, in the order of one stream.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/device.hpp"

namespace digits {

/// A matrix as it is stored, row-major, and whether it is meant transposed.
struct DeviceMatrix {
  const float* data;
  std::size_t rows;
  std::size_t columns;
  bool transposed = false;
};

/// Everything is enqueued; all pointers are to device memory.
class Compute {
 public:
  virtual ~Compute() = default;
  /// out = a * b, row-major.
  virtual void multiply(const DeviceMatrix& a, const DeviceMatrix& b, float* out) = 0;
  /// Adds `bias` to every row of out; then, with `rectify`, what is negative becomes zero.
  virtual void add_bias(float* out, const float* bias, std::size_t rows, std::size_t columns,
                        bool rectify) = 0;
  /// out = the sum of the rows.
  virtual void sum_rows(const float* matrix, std::size_t rows, std::size_t columns, float* out) = 0;
  /// delta becomes zero where the rectifier was.
  virtual void mask(float* delta, const float* activations, std::size_t count) = 0;
  /// Softmax cross entropy of each row against its label, and the gradient of their mean.
  virtual void softmax(const float* logits, const int* labels, std::size_t rows, std::size_t classes,
                       float* gradient, float* losses) = 0;
  /// velocity = momentum * velocity + gradient; value -= rate * velocity.
  virtual void descend(float* value, float* velocity, const float* gradient, std::size_t count, float rate,
                       float momentum) = 0;
};

/// For lockstep's host backend, whose device memory is the host's: each call waits for the stream and
/// computes.
std::unique_ptr<Compute> make_host_compute(lockstep::Stream stream);
/// cuBLAS and a few kernels. Throws std::runtime_error where the example was built without them.
std::unique_ptr<Compute> make_cuda_compute(lockstep::Stream stream);

}  // namespace digits
