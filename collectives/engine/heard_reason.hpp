// HeardReason: why a peer says on its links that the communicator has ended.
#pragma once

#include <map>
#include <string>

#include "lib/base/status.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// A peer says it once: the first reason is kept until it is acted on. Not thread-safe (the engine's lock
/// guards it).
class HeardReason {
 public:
  explicit HeardReason(int size) : size_(size) {}

  /// Takes from `link` what is here of the frame at its head, a revoke that begins with `header`, of at most
  /// kMaxReasonBytes. Whether all of it has come. Errors: the link's.
  Result<bool> read(const FrameHeader& header, Link& link);
  /// ok: nothing was heard.
  const Status& get() const { return reason_; }

 private:
  const int size_;
  Status reason_;
  std::map<const Link*, std::string> partial_;  // Of frames whose payload is arriving.
};

}  // namespace lockstep::internal
