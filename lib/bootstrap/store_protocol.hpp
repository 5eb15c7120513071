// The bytes between a TCP store and its clients, after the handshake. Pure functions over bytes: no I/O,
// nothing allocated beyond the size of what was received, nothing taken on trust.
//
// A frame is a 32-bit size and that many bytes of body; a body is a verb and its fields. A client has one
// request under way per connection and gets one reply to it. On a connection of HandshakeService::watch there
// are no requests: the client may say `leave` and `lost`, the server says `lost`, and `leave` when it ends in
// good order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/bootstrap/loss.hpp"
#include "lib/bootstrap/store.hpp"

namespace lockstep::internal {

/// Values travel: never renumber.
enum class StoreVerb : std::uint8_t { set = 1, get = 2, wait = 3, add = 4, leave = 5, lost = 6 };

struct StoreRequest {
  StoreVerb verb = StoreVerb::set;
  std::vector<Store::Entry> entries;  ///< set
  std::vector<std::string> keys;      ///< get, wait; add: one
  std::uint32_t timeout_ms = 0;       ///< get, wait
  std::int64_t delta = 0;             ///< add
  Loss loss;                          ///< lost
};

struct StoreReply {
  Status status;
  std::vector<std::string> values;  ///< get
  std::vector<bool> present;        ///< wait
  std::int64_t sum = 0;             ///< add
};

/// The whole frame, size included.
std::string encode(const StoreRequest& request);
std::string encode(const StoreReply& reply);

/// The body of the first frame of `bytes`, or nothing while it is not wholly there. Fails when its size is
/// above `most`.
Result<std::optional<std::span<const std::byte>>> first_frame(std::span<const std::byte> bytes,
                                                              std::size_t most);
/// Bytes that a frame adds to its body.
inline constexpr std::size_t kFrameOverhead = 4;

/// From a frame's body. ErrorCode::unauthorized for bytes that are no request or reply.
Result<StoreRequest> decode_request(std::span<const std::byte> body);
Result<StoreReply> decode_reply(std::span<const std::byte> body);

}  // namespace lockstep::internal
