// Which calls one packet kernel serves, and what it has to do in them.
#pragma once

#include <optional>

#include "collectives/programs/program.hpp"
#include "lib/device/sync/packet_call.hpp"
#include "transports/frame.hpp"

namespace lockstep::internal {

/// Payload that fits a slot of an inbox.
constexpr std::uint64_t slot_payload(std::uint64_t slot_bytes) {
  return slot_bytes / sizeof(sync::Packet) * sync::kPacketPayload;
}

/// All but buffers, factors, and what belongs to the communicator (inboxes, epochs, bounds). Nothing where
/// the call is too large, names an algorithm, or has counts that not all ranks know: which follows from
/// shared facts alone. `most_blocks`: equal on all ranks.
std::optional<sync::PacketArguments> plan_packets(const CallFacts& facts, const Shape& shape,
                                                  std::uint64_t slot_bytes,
                                                  int most_blocks = sync::kMaxPacketBlocks);

}  // namespace lockstep::internal
