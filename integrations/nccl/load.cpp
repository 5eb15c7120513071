// What has to be set before the program's first use of a device: the driver does not look again.
#include <cstdlib>

namespace lockstep::nccl {
namespace {

/// Streams that share a connection wait for one another, and one that waits for a word never ends then; by
/// default eight have their own. A program that is preloaded with this library, or linked, makes its context
/// before the first call of NCCL.
[[gnu::constructor]] void give_streams_connections() {
  static_cast<void>(::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0));
}

}  // namespace
}  // namespace lockstep::nccl
