#include "collectives/device/buffer_check.hpp"

#include <string>

namespace lockstep::internal {

Status check_place(Backend& backend, int device, const void* pointer, std::uint64_t bytes,
                   const char* which) {
  if (bytes == 0 || pointer == nullptr) return {};
  auto place = backend.locate(pointer);
  if (!place.ok()) return place.status();
  if (place->space == MemorySpace::unregistered)
    return Status(ErrorCode::invalid_argument, std::string(which) +
                                                   " is not memory of a device: use a Communicator for host "
                                                   "memory, or allocate it with the device");
  if (place->space != MemorySpace::device || place->device == device) return {};
  return Status(ErrorCode::invalid_argument,
                std::string(which) + " lies on device " + std::to_string(place->device) +
                    ", but this communicator works on device " + std::to_string(device));
}

Status check_messages(Backend& backend, int device, int self, std::span<const DeviceMessage> messages) {
  int own_sends = 0, own_receives = 0;
  for (const DeviceMessage& message : messages) {
    if (message.peer == self) ++(message.is_send ? own_sends : own_receives);
    const char* const which = message.is_send ? "the sent buffer" : "the receiving buffer";
    LOCKSTEP_RETURN_IF_ERROR(check_place(backend, device, message.buffer, message.bytes, which));
  }
  if (own_sends == own_receives) return {};
  return Status(ErrorCode::invalid_argument,
                "a send to the own rank needs its receive in the same batch, and the other way round");
}

}  // namespace lockstep::internal
