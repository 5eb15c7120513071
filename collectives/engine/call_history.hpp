// CallHistory: which collectives this rank has called, and what its peers said of those that it has yet to.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "transports/domain.hpp"
#include "transports/frame.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// A call made here or by a peer, to compare with the other's.
struct CallNote {
  std::uint64_t sequence_plus_one = 0;  ///< 0 = none.
  CallFacts facts;
  bool urgent = false;

  /// A peer's, of a frame of it.
  static CallNote of(const FrameHeader& header, Channel channel) {
    return {header.sequence + 1, header.facts, channel == Channel::urgent};
  }
  bool is_as(const CallNote& other) const { return facts == other.facts && urgent == other.urgent; }
};

/// Not thread-safe (the engine's lock guards it).
class CallHistory {
 public:
  /// Without a domain peers see nothing of it.
  CallHistory(Domain* domain, int rank, int size)
      : domain_(domain), rank_(rank), probes_(static_cast<std::size_t>(size)) {}

  void note(const CallNote& call) { recent_[(call.sequence_plus_one - 1) % kRecentCalls] = call; }
  /// To the peers. Not before it is under way: what waits for its turn would take the places of calls that
  /// are.
  void show(std::uint64_t sequence, const CallFacts& facts) {
    if (domain_ != nullptr) domain_->control(rank_).recent[sequence % kRecentCalls].write(sequence, facts);
  }
  /// One of the last kRecentCalls.
  std::optional<CallNote> recent(std::uint64_t sequence) const {
    const CallNote& call = recent_[sequence % kRecentCalls];
    return call.sequence_plus_one == sequence + 1 ? std::optional(call) : std::nullopt;
  }

  /// A peer waits for this rank with `call`, which this rank has yet to make.
  void keep_probe(int peer, const CallNote& call);
  bool has_probes() const { return probes_kept_ > 0; }
  /// The last that was kept of it.
  const CallNote& probe_of(int peer) const { return probes_[static_cast<std::size_t>(peer)]; }
  /// Now it makes `call`: forgets what peers said of it. The first that called something else, if any did.
  std::optional<int> settle(const CallNote& call, CallNote& theirs);

 private:
  Domain* const domain_;
  const int rank_;
  std::array<CallNote, kRecentCalls> recent_{};
  std::vector<CallNote> probes_;  // By peer.
  int probes_kept_ = 0;           // How many of them are there.
};

}  // namespace lockstep::internal
