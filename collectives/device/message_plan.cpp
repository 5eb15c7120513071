#include "collectives/device/message_plan.hpp"

#include <algorithm>

namespace lockstep::internal {

bool passes_as_messages(Collective collective) {
  return collective == Collective::scatter_v || collective == Collective::gather_v ||
         collective == Collective::all_to_all_v;
}

std::vector<DeviceMessage> messages_of(const Call& call, int self, int world) {
  const std::size_t element = size_of(call.facts.type);
  std::vector<DeviceMessage> messages;
  const auto add = [&](bool is_send, const void* base, std::size_t first, std::size_t count, int peer) {
    auto* const at = static_cast<std::byte*>(const_cast<void*>(base)) + first * element;
    messages.push_back({is_send, at, count * element, peer, nullptr});
  };
  const auto add_blocks = [&](bool is_send, const void* base, std::span<const std::size_t> counts) {
    std::size_t first = 0;
    for (int peer = 0; peer < world; first += counts[static_cast<std::size_t>(peer++)])
      add(is_send, base, first, counts[static_cast<std::size_t>(peer)], peer);
  };
  const bool at_root = call.facts.root == self;
  const std::size_t own = call.counts[static_cast<std::size_t>(self)];
  switch (call.facts.collective) {
    case Collective::scatter_v:
      if (at_root) add_blocks(true, call.input, call.counts);
      add(false, call.output, 0, own, call.facts.root);
      break;
    case Collective::gather_v:
      add(true, call.input, 0, own, call.facts.root);
      if (at_root) add_blocks(false, call.output, call.counts);
      break;
    default:
      add_blocks(true, call.input, call.counts);
      add_blocks(false, call.output, call.recv_counts);
  }
  return messages;
}

std::string describe(std::span<const DeviceMessage> messages, int peer) {
  const auto is_meant = [peer](const DeviceMessage& one) { return peer < 0 || one.peer == peer; };
  const auto meant = std::count_if(messages.begin(), messages.end(), is_meant);
  if (meant != 1) return "a batch of " + std::to_string(messages.size()) + " messages";
  const DeviceMessage& one = *std::find_if(messages.begin(), messages.end(), is_meant);
  return std::string(one.is_send ? "send(" : "recv(") + std::string(name_of(one.type)) + " x " +
         std::to_string(one.bytes / size_of(one.type)) + (one.is_send ? ") to rank " : ") from rank ") +
         std::to_string(one.peer);
}

Status fit_one_kernel(std::span<const DeviceMessage> messages, int self) {
  const auto placed = std::count_if(messages.begin(), messages.end(),
                                    [self](const DeviceMessage& message) { return message.peer != self; });
  if (placed <= sync::kMaxMessages) return {};
  return Status(ErrorCode::not_supported,
                "a batch of more than " + std::to_string(sync::kMaxMessages) +
                    " messages does not fit one kernel: submit it in parts, or use mode host_sync");
}

Result<sync::MessageArguments> plan_messages(std::span<const DeviceMessage> messages, int self, int world,
                                             std::uint64_t slot_bytes) {
  LOCKSTEP_RETURN_IF_ERROR(fit_one_kernel(messages, self));
  sync::MessageArguments plan{};
  plan.rank = self;
  plan.world = world;
  plan.slot_bytes = slot_bytes;
  std::size_t placed = 0;
  std::uint64_t chunks = 1;
  // Every rank begins with another peer.
  for (int k = 1; k < world; ++k) {
    for (const bool sends : {true, false}) {
      const int peer = (self + (sends ? k : world - k)) % world;
      sync::MessageList list{static_cast<std::int16_t>(peer), sends, static_cast<std::uint16_t>(placed), 0};
      for (const DeviceMessage& message : messages) {
        if (message.peer != peer || message.is_send != sends) continue;
        plan.messages[placed++] = {static_cast<std::byte*>(message.buffer), message.bytes};
        chunks = std::max(chunks, sync::message_chunks(message.bytes, slot_bytes));
        ++list.count;
      }
      if (list.count > 0) plan.list[plan.lists++] = list;
    }
  }
  plan.channels = static_cast<int>(
      std::min<std::uint64_t>(chunks, static_cast<std::uint64_t>(sync::message_channels(world))));
  return plan;
}

}  // namespace lockstep::internal
