// Whether buffers are where this rank's device can use them, before anything waits on memory that its kernels
// could not reach.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/device/device_task.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// `which`: what the buffer is called in the error. Memory that is not used may be anywhere.
Status check_place(Backend& backend, int device, const void* pointer, std::uint64_t bytes, const char* which);

/// The messages of one batch of rank `self`: their buffers, and that those to itself have both ends.
Status check_messages(Backend& backend, int device, int self, std::span<const DeviceMessage> messages);

}  // namespace lockstep::internal
