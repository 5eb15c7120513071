// Which messages a call is made of, and how one kernel carries them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "collectives/device/device_task.hpp"
#include "lib/device/sync/message_call.hpp"

namespace lockstep::internal {

/// Where a block lies in a member's buffer is known to that member alone: such a collective passes as
/// messages.
bool passes_as_messages(Collective collective);
inline bool is_of_messages(const DeviceTask& task) {
  return !task.call || passes_as_messages(task.call->call().facts.collective);
}

/// scatter_v, gather_v, all_to_all_v: a message for every block, also those that are empty, without streams.
std::vector<DeviceMessage> messages_of(const Call& call, int self, int world);

/// As their caller made them: the one that has to do with `peer` (-1: with anybody), else how many there are.
std::string describe(std::span<const DeviceMessage> messages, int peer = -1);

/// Whether rank `self` can pass them in one kernel; not_supported otherwise.
Status fit_one_kernel(std::span<const DeviceMessage> messages, int self);

/// Messages to and from peers of a group of `world`, grouped by peer and direction in their order; areas,
/// counters and bounds are the caller's to fill in. Those to the own rank are left out. `slot_bytes`: not 0.
/// not_supported: more than a kernel takes.
Result<sync::MessageArguments> plan_messages(std::span<const DeviceMessage> messages, int self, int world,
                                             std::uint64_t slot_bytes);

}  // namespace lockstep::internal
