// What has to be set before the program's first use of a device: the driver does not look again.
#include "lockstep/device_runtime.hpp"

namespace lockstep::nccl {
namespace {

/// As the library does where it comes first (docs/gpu.md, "What may block"). A program that is preloaded with
/// this one, or linked, makes its context before the first call of NCCL.
[[gnu::constructor]] void set_driver_variables() { device::set_driver_variables(); }

}  // namespace
}  // namespace lockstep::nccl
