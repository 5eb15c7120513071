#include "lib/device/driver_variables.hpp"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>

namespace lockstep::internal {
namespace {

/// Of the device's work queues, a process's part. Streams that share one wait for one another, which a stream
/// that waits for a word makes a hang; by default a process has eight.
constexpr const char* kConnections = "32";
/// The processes of a GPU that share it by MPS have 64 to 95 in all, and with 32 each a third found no memory
/// for its context (measured on an H100): eight such processes are served.
constexpr const char* kConnectionsUnderMps = "8";

/// Whether a daemon of MPS is where the driver looks for one: only that tells before the driver is in use.
bool mps_is_on() {
  const char* const named = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const char* const folder = named != nullptr ? named : "/tmp/nvidia-mps";
  char control[PATH_MAX];
  const int length = std::snprintf(control, sizeof control, "%s/control", folder);
  return length > 0 && static_cast<std::size_t>(length) < sizeof control && ::access(control, F_OK) == 0;
}

}  // namespace

void set_driver_variables() noexcept {
  static_cast<void>(
      ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", mps_is_on() ? kConnectionsUnderMps : kConnections, 0));
  // A kernel that is loaded when it is first started may wait for all that the device has to do, and keeps
  // other threads' calls from the driver meanwhile (CUDA Programming Guide, "Lazy Loading"): a hang where a
  // stream waits for one of them, as in host_sync.
  static_cast<void>(::setenv("CUDA_MODULE_LOADING", "EAGER", 0));
}

}  // namespace lockstep::internal
