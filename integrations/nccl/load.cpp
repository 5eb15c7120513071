// What has to be set before the program's first use of a device: the driver does not look again.
#include <cstdlib>

namespace lockstep::nccl {
namespace {

/// As the library does where it comes first (docs/gpu.md, "What may block"). A program that is preloaded with
/// this one, or linked, makes its context before the first call of NCCL.
[[gnu::constructor]] void set_driver_variables() {
  static_cast<void>(::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0));
  static_cast<void>(::setenv("CUDA_MODULE_LOADING", "EAGER", 0));
}

}  // namespace
}  // namespace lockstep::nccl
