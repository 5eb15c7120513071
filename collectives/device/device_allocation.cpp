// Device memory that peers can map.
#include "lib/device/backend.hpp"
#include "lockstep/device.hpp"

namespace lockstep {

using internal::DeviceScope;

void* allocate_device(std::size_t bytes, int device) {
  auto backend = internal::device_backend();
  backend.status().throw_if_error();
  const DeviceScope scope(**backend, device);
  scope.status().throw_if_error();
  auto memory = (*backend)->allocate(device, bytes);
  memory.status().throw_if_error();
  return *memory;
}

void free_device(void* pointer) {
  if (pointer == nullptr) return;
  auto backend = internal::device_backend();
  backend.status().throw_if_error();
  const auto place = (*backend)->locate(pointer);
  place.status().throw_if_error();
  const DeviceScope scope(**backend, place.value().device < 0 ? 0 : place.value().device);
  (*backend)->free(pointer).throw_if_error();
}

}  // namespace lockstep
