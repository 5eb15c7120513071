// Messages between ranks in one kernel: sends and receives that do not wait for one another, of any size.
//
// For every ordered pair of ranks the receiver's memory has a ring of slots on each of a few channels. The
// sender fills a slot and raises a word beside the ring; the receiver empties it and raises a word in the
// sender's memory, which frees the slot. A message is cut into chunks that take the channels in turn, and
// every chunk begins with the size of its message, so that two ranks that mean different sizes find out.
//
// A block is one channel of one direction with one peer. It waits for the block of the same channel on the
// peer, so all blocks have to run side by side: there are at most kMaxMessageBlocks, and they are small.
// What counts the chunks lies in device memory and rises in the kernel, so that a graph may replay it.
#pragma once

#include "lib/device/sync/packet_call.hpp"

namespace lockstep::internal::sync {

inline constexpr int kMessageChannels = 4;
inline constexpr std::uint32_t kMessageSlots = 4;  ///< A power of two: counters wrap.
/// Of one kernel; what its arguments have room for.
inline constexpr int kMaxMessages = 192;
inline constexpr int kMaxMessageBlocks = 2 * kMaxPacketRanks;
inline constexpr std::uint64_t kMessageHead = sizeof(cuda::Vector);  ///< Of a slot: the message's size.

/// Channels between two ranks: the more ranks the fewer, so that all blocks run side by side.
constexpr int message_channels(int world) { return world <= 8 ? kMessageChannels : 1; }
static_assert(2 * (8 - 1) * kMessageChannels <= kMaxMessageBlocks);

struct Message {
  std::byte* buffer;  ///< Read only by a sender.
  std::uint64_t bytes;
};

/// The messages with one peer in one direction, in order.
struct MessageList {
  std::int16_t peer;
  std::uint16_t sends;  ///< Not 0: to the peer.
  std::uint16_t first, count;
};

/// Of this rank alone, in device memory, by peer and channel: chunks so far.
struct MessageCounters {
  std::uint32_t sent[kMaxPacketRanks][kMessageChannels];
  std::uint32_t taken[kMaxPacketRanks][kMessageChannels];
};

/// In pinned memory; valid once a report says that sizes differ.
struct MessageSizes {
  std::uint64_t sent, expected;
};

struct MessageArguments {
  int rank, world, lists;
  int channels;              ///< Of this call: no more than its longest message has chunks.
  std::uint64_t slot_bytes;  ///< With its head.
  MessageCounters* counters;
  MessageSizes* sizes;
  SpinBounds bounds;
  std::byte* areas[kMaxPacketRanks];  ///< The members', as this device addresses them.
  MessageList list[2 * kMaxPacketRanks];
  Message messages[kMaxMessages];
};

// An area: a sector for each word, then the slots.
inline constexpr std::uint64_t kMessageWord = 32;
constexpr std::uint64_t message_word_bytes(int world) {
  return 2u * static_cast<std::uint64_t>(world * message_channels(world)) * kMessageWord;
}
/// Of a slot in an area of so many bytes; 0: messages cannot go this way.
constexpr std::uint64_t message_slot_bytes(std::uint64_t area_bytes, int world) {
  constexpr std::uint64_t kMost = 256 << 10;  // Longer ones gain nothing and begin later.
  if (world < 2 || world > kMaxPacketRanks || area_bytes <= message_word_bytes(world)) return 0;
  const std::uint64_t slots = static_cast<std::uint64_t>(world * message_channels(world)) * kMessageSlots;
  const std::uint64_t each = (area_bytes - message_word_bytes(world)) / slots / kMessageHead * kMessageHead;
  return each <= kMessageHead ? 0 : each < kMost ? each : kMost;
}
/// An empty message is a chunk, too.
constexpr std::uint64_t message_chunks(std::uint64_t bytes, std::uint64_t slot_bytes) {
  const std::uint64_t payload = slot_bytes - kMessageHead;
  return bytes == 0 ? 1 : (bytes + payload - 1) / payload;
}

}  // namespace lockstep::internal::sync
