// Device memory that peers can map.
#include "lib/device/backend.hpp"
#include "lockstep/device.hpp"
#include "transports/cuda_ipc/device_exports.hpp"

namespace lockstep {

using internal::DeviceScope;

void* allocate_device(std::size_t bytes, int device) {
  auto backend = internal::device_backend();
  backend.status().throw_if_error();
  const DeviceScope scope(**backend, device);
  scope.status().throw_if_error();
  // Peers map whole blocks; without bytes it is an error.
  auto memory = (*backend)->allocate(device, internal::whole_legacy_blocks(bytes));
  memory.status().throw_if_error();
  return *memory;
}

void free_device(void* pointer) {
  if (pointer == nullptr) return;
  auto backend = internal::device_backend();
  backend.status().throw_if_error();
  const auto place = (*backend)->locate(pointer);
  place.status().throw_if_error();
  if (place.value().space != internal::MemorySpace::device || place.value().base != pointer) {
    throw Error(
        ErrorCode::invalid_argument,
        "free_device was given a pointer that allocate_device did not return, or that is freed already");
  }
  const DeviceScope scope(**backend, place.value().device);
  const internal::BesideCaptures beside(**backend);  // Communicators are destroyed on threads of their own.
  internal::DeviceExports::of(**backend).retire(pointer);  // A peer may still have it mapped.
}

}  // namespace lockstep
