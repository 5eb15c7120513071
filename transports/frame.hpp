// Frame: the fixed header in front of every message on a link. Host byte order (all ranks are little-endian;
// the handshake checks).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/types.hpp"

namespace lockstep::internal {

/// The facts of a collective that all ranks must agree on; compared bit for bit with what the receiver itself
/// called.
struct CallFacts {
  Collective collective = Collective::barrier;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  /// Its row of the algorithm table + 1, where it is forced by name; 0: chosen from the other facts.
  std::uint8_t algorithm = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;  ///< As in the call; 0 where counts differ by rank.
  std::uint64_t extra = 0;  ///< Hash of further agreed facts (v-counts known to all).
  bool operator==(const CallFacts& other) const { return std::memcmp(this, &other, sizeof other) == 0; }
};
static_assert(sizeof(CallFacts) == 24 && std::is_trivially_copyable_v<CallFacts> &&
              std::has_unique_object_representations_v<CallFacts>);

enum class FrameKind : std::uint8_t {
  data = 1,     ///< Payload of a step of a collective.
  probe = 2,    ///< "I wait for you in this call": no payload. Finds mismatches where neither side sends.
  revoke = 3,   ///< The communicator is dead: payload is the reason (text, at most kMaxReasonBytes).
  offer = 4,    ///< Point to point: a message of `bytes` with `tag` is ready; small ones carry it as payload.
  accept = 5,   ///< Point to point: send message `sequence` now.
  message = 6,  ///< Point to point: the payload asked for.
  waits = 7,  ///< "I wait myself, in this call, for rank `tag`", to who may wait for the sender. No payload.
};

inline constexpr std::uint16_t kFrameMagic = 0x4c53;  // "SL"
inline constexpr std::uint8_t kFrameVersion = 1;
inline constexpr std::uint64_t kMaxReasonBytes = 4096;

struct FrameHeader {
  std::uint16_t magic = kFrameMagic;
  std::uint8_t version = kFrameVersion;
  FrameKind kind = FrameKind::data;
  std::uint32_t unused = 0;  ///< Reserved: 0.
  /// Of the call on this communicator; point to point: of the message on this link.
  std::uint64_t sequence = 0;
  /// Which message of this call on this link (0, 1, ...); point to point: as matcher.hpp says.
  std::uint32_t index = 0;
  std::int32_t tag = 0;  ///< Point to point; of `waits`, a rank.
  /// Payload bytes that follow (offer without payload: 0, and facts.count holds the size).
  std::uint64_t bytes = 0;
  CallFacts facts;
  /// 0 where the engine writes and reads it; links may use it between their two ends.
  std::uint64_t reserved = 0;
};
static_assert(sizeof(FrameHeader) == 64 && std::is_trivially_copyable_v<FrameHeader>);

}  // namespace lockstep::internal
