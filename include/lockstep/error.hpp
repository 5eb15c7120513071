// The one exception type of the C++ surface.
#pragma once

#include <stdexcept>
#include <string>

#include "lockstep/export.hpp"

namespace lockstep {

/// Why an operation failed. Values are part of the C ABI: never renumber.
enum class ErrorCode : int {
  ok = 0,
  /// The call itself is wrong. Of a collective the peers are told (refused), and the communicator is revoked
  /// unless it has one rank; of a send or receive, or a start, nothing has happened.
  invalid_argument = 1,
  /// Ranks called different operations at one sequence number: the communicator is revoked. Of a receive: the
  /// message has another element type; nothing else has happened.
  mismatch = 2,
  peer_lost = 3,  ///< A rank died or left. The communicator is revoked.
  timeout = 4,    ///< A deadline passed. The communicator is revoked when an operation was under way.
  aborted = 5,    ///< abort() was called here or on a peer.
  /// A peer refused the call locally (its message says why). Of a collective the communicator is revoked.
  refused = 6,
  system = 7,  ///< The operating system refused something; errno's text is in the message.
  out_of_memory = 8,
  not_supported = 9,
  configuration = 10,  ///< Environment variables, options or launcher settings contradict each other.
  unauthorized = 11,   ///< Wrong job, secret or protocol version in a handshake.
  internal = 12,       ///< A bug in lockstep.
  device_failed = 13,  ///< A device or its driver refused something; CUDA's text is in the message.
};

/// Thrown by the C++ surface. what() of an operation that was started names it, its sequence number, rank,
/// peer, one cause, the state of the caller's buffers, and the next step to take; of any other call the cause
/// and the next step.
class LOCKSTEP_API Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message, int culprit = -1);
  ErrorCode code() const noexcept { return code_; }
  /// The rank that caused the failure, or -1 when no single rank did.
  int culprit() const noexcept { return culprit_; }

 private:
  ErrorCode code_;
  int culprit_;
};

}  // namespace lockstep
