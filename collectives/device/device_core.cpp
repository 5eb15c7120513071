#include "collectives/device/device_core.hpp"

namespace lockstep {
namespace internal {

Result<std::shared_ptr<DeviceCore>> DeviceCore::make(CommunicatorCore&, int, const DeviceOptions&) {
  return Status(ErrorCode::not_supported, "this build of lockstep has no collectives on devices");
}

}  // namespace internal

void* allocate_device(std::size_t, int) {
  throw Error(ErrorCode::not_supported, "this build of lockstep has no collectives on devices");
}

void free_device(void* pointer) {
  if (pointer != nullptr)
    throw Error(ErrorCode::invalid_argument, "the pointer is not one of allocate_device()");
}

}  // namespace lockstep
