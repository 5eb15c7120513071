// The arithmetic of the host backend, whose device memory is the host's: by the caller, after the stream.
#include "examples/gpt/device/compute.hpp"
#include "lockstep/device_runtime.hpp"

namespace gpt {
namespace {

class HostCompute final : public Compute {
 public:
  explicit HostCompute(lockstep::Stream stream) : stream_(stream) {}

  void multiply_add(const examples::MatrixView& a, const examples::MatrixView& b, float* out) override {
    lockstep::device::synchronize(stream_);
    examples::multiply_add(a, b, out);
  }
  void run(const Body& any, std::size_t threads) override {
    lockstep::device::synchronize(stream_);
    std::visit(
        [threads](const auto& body) {
          for (std::size_t i = 0; i < threads; ++i) body(i);
        },
        any);
  }

 private:
  const lockstep::Stream stream_;
};

}  // namespace

std::unique_ptr<Compute> make_host_compute(lockstep::Stream stream) {
  return std::make_unique<HostCompute>(stream);
}

}  // namespace gpt
