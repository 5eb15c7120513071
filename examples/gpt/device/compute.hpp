// Who runs the arithmetic of the GPT on device memory, in the order of one stream.
#pragma once

#include <memory>

#include "examples/gpt/device/bodies.hpp"
#include "examples/matrix/matrix.hpp"
#include "lockstep/device.hpp"

namespace gpt {

/// Everything is enqueued; all pointers are to device memory.
class Compute {
 public:
  virtual ~Compute() = default;
  /// out += a * b, row-major; a and b are stored row-major, or that transposed.
  virtual void multiply_add(const examples::MatrixView& a, const examples::MatrixView& b, float* out) = 0;
  /// The body with every i below `threads`.
  virtual void run(const Body& body, std::size_t threads) = 0;
};

/// For lockstep's host backend, whose device memory is the host's: each call waits for the stream and
/// computes.
std::unique_ptr<Compute> make_host_compute(lockstep::Stream stream);
/// cuBLAS and a kernel a body. Throws std::runtime_error where the example was built without them.
std::unique_ptr<Compute> make_cuda_compute(lockstep::Stream stream);

}  // namespace gpt
