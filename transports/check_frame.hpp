// What links say of bytes that are no frame.
#pragma once

#include <string>

#include "lib/base/status.hpp"
#include "transports/frame.hpp"

namespace lockstep::internal {

inline bool is_frame(const FrameHeader& header) {
  return header.magic == kFrameMagic && header.version == kFrameVersion;
}

/// `who` is how messages call the rank `peer`.
inline Status no_frame(const std::string& who, int peer) {
  return Status(ErrorCode::internal,
                who + " sent bytes that are not a frame: check that all ranks run one version", peer);
}

}  // namespace lockstep::internal
