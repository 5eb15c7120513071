#include "lib/device/backend.hpp"

#include "lib/base/config.hpp"
#include "lib/device/cuda/cuda_backend.hpp"
#include "lib/device/host/host_backend.hpp"

namespace lockstep::internal {
namespace {

Result<Backend*> open_backend() {
  LOCKSTEP_RETURN_IF_ERROR(check_environment());
  if (config_text("LOCKSTEP_DEVICE_BACKEND") == "host") return new HostBackend;
  return open_cuda_backend();
}

}  // namespace

Result<Backend*> device_backend() {
  // Never destroyed: streams may still run when static objects go.
  static const Result<Backend*> backend = open_backend();
  if (backend.ok() && in_forked_child()) {
    return Status(ErrorCode::not_supported,
                  "this process was forked after lockstep used a device: start ranks by exec (lockstep-run, "
                  "torchrun), or fork before the first use");
  }
  return backend;
}

Backend& device_backend_or_throw() {
  const Result<Backend*> backend = device_backend();
  backend.status().throw_if_error();
  return *backend.value();
}

}  // namespace lockstep::internal
