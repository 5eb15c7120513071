// A collective on small messages in one kernel, thread by thread: every rank stores what a member needs in
// that member's inbox as packets, and takes from its own inbox what the others stored there.
//
// One call has up to four parts, of which a collective uses some:
//   send    my bytes for each member, to its first inbox
//   reduce  a part of the message, from my input and the first inbox of every member, in rank order;
//           `forward` sends the result on to everybody's second inbox
//   keep    my own block, where nothing is reduced
//   place   the members' blocks, from my first inbox, or the second after a reduction
// all_reduce is send whole, reduce whole (one-shot); or send parts, reduce mine, forward, place the others'
// (two-shot). The other collectives are fewer parts of the same.
//
// Two sets of inboxes take turns, and every rank sends every member a token and waits for theirs. So nobody
// overwrites what is not read: who has a member's token of call k + 1 knows that it ended call k, and only
// call k + 2 writes to the inboxes of call k. No inbox is ever cleared: a packet is new when it has the flags
// of the call's epoch, which lies in device memory and rises in the kernel, so that a graph may replay it.
//
// Packet u of any part is for thread u modulo the number of threads, on all ranks. So a thread waits for
// threads of its own number only, and the protocol needs no barriers. But block b of all ranks has to run at
// the same time: where ranks share a GPU, all their blocks have room there (ModeDecision::packet_blocks), and
// on a GPU of its own a rank has at most 32. (tests/model/packets.pml)
#pragma once

#include "lib/device/sync/spin.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal::sync {

inline constexpr int kMaxPacketRanks = 32;
inline constexpr int kMaxPacketBlocks = 32;
inline constexpr std::size_t kPacketPayload = sizeof(cuda::Vector);

/// Bytes of one member's block in one of the caller's buffers.
struct Region {
  std::uint64_t offset, bytes;
};

struct PacketArguments {
  DataType type;  ///< Of the kernel; small enough to be an operator's (PlannedPass).
  ReduceOp op;
  int rank, world, blocks;
  double divisor;  ///< 1 unless the result is divided.
  bool forward, scaled;
  double factor;
  const void* device_factor;  ///< Not null: one element in place of the factor.
  const std::byte* input;
  std::byte* output;
  std::byte* inboxes[kMaxPacketRanks];  ///< The members', as this device addresses them.
  std::uint64_t slot_bytes;             ///< Of one sender in one inbox: packets.
  std::uint64_t* epochs;                ///< kMaxPacketBlocks of this rank: the number of calls that ended.
  SpinBounds bounds;
  Region send[kMaxPacketRanks];      ///< Of the input, by receiver.
  Region reduce, keep;               ///< Of the input;
  std::uint64_t reduce_to, keep_to;  ///< and where in the output they go.
  Region place[kMaxPacketRanks];     ///< Of the output, by sender.
};

/// An inbox: tokens of both sets, then for each set the first and the second slots of every sender.
constexpr std::uint64_t token_bytes(int world) {
  return 2u * static_cast<std::uint64_t>(world) * sizeof(Packet);
}

}  // namespace lockstep::internal::sync
