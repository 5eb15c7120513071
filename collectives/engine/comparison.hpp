// Comparison: of this rank's calls with its peers'; what differs, and who is waited for, in words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/call_history.hpp"
#include "collectives/engine/engine_group.hpp"
#include "collectives/engine/in_flight.hpp"
#include "collectives/engine/who_waits.hpp"
#include "lib/base/env.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// Where two ranks differ both are named, and neither is to blame before the others. Not thread-safe (the
/// engine's lock guards it).
class Comparison {
 public:
  /// `transport` may be null. All outlive it.
  Comparison(const EngineGroup& group, Transport* transport, const InFlight& in_flight,
             const CallHistory& history, Env& env);

  /// What this rank called: as long as it is under way, and of what is over the last kRecentCalls.
  CallNote own_call(std::uint64_t sequence) const;

  /// A mismatch: `peer` called what it says, and this rank something else, or nothing that is known.
  Status difference(int peer, const CallNote& theirs) const;
  /// A mismatch of counts: `peer` sent what `header` says.
  Status difference_of_sizes(int peer, const FrameHeader& header, std::uint64_t expected) const;
  /// In a domain: whether a member has recorded another call in place of `operation`, or left before it.
  Status with_records(const Operation& operation) const;
  /// A mismatch with `member`, whose fingerprint is here, and another than this rank's. Nothing while it has
  /// yet to record what it called; but not for ever.
  std::optional<Status> with_fingerprint(int member, const Operation& operation);

  std::vector<int> peers_awaited(const Operation& operation) const;
  /// The same, but in place of those that only wait themselves, as they said, those whom they wait for.
  std::vector<int> culprits_awaited(const Operation& operation) const;
  /// Over links: `peer` tells that it waits itself, and for whom, which may be any number.
  void note_waits(int peer, Channel channel, const FrameHeader& told);
  /// What to tell `peer`, which may wait for this rank in `operation`: whom that waits for; none but it:
  /// nobody.
  std::optional<FrameHeader> waits(const Operation& operation, int peer) const;
  /// "it waits for rank 1 (host-2, pid 4711)". `next`: the sequence of this rank's next collective.
  std::string waiting_text(const Operation& operation, std::uint64_t next) const;

 private:
  /// Of the peers awaited, those of which no more is known; those that only wait, and for whom.
  struct AwaitedPeers {
    std::vector<int> silent, waiting, ends;
  };
  AwaitedPeers awaited_of(const Operation& operation) const;
  std::string names_awaited(const Operation& operation) const;
  CallNote missed_here(int peer, std::uint64_t next) const;
  std::string calls_missed(const Operation& message, std::uint64_t next) const;

  const EngineGroup& group_;
  Transport* const transport_;
  Domain* const domain_;
  const InFlight& in_flight_;
  const CallHistory& history_;
  Env& env_;
  WhoWaits who_waits_;
  Nanos unrecorded_ = 0;  // When another's fingerprint was first seen without its call; 0: never.
};

}  // namespace lockstep::internal
