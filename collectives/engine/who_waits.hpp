// WhoWaits: whom the peers that this rank waits for wait for themselves.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "lib/base/env.hpp"

namespace lockstep::internal {

/// As they told it (FrameKind::waits), of calls that are urgent and of others. Not thread-safe (the engine's
/// lock guards it).
class WhoWaits {
 public:
  explicit WhoWaits(int size) {
    for (auto& told : told_) told.resize(static_cast<std::size_t>(size));
  }

  /// `peer` waits for `awaited` in call `sequence`.
  void tell(int peer, bool urgent, std::uint64_t sequence, int awaited, Nanos now) {
    told_[urgent][static_cast<std::size_t>(peer)] = {sequence + 1, awaited, now};
  }
  /// Whom it waits for in that call or one before, if it has told so after `since`: what is older may be so
  /// no more.
  std::optional<int> told_by(int peer, bool urgent, std::uint64_t sequence, Nanos since) const {
    const Told& last = told_[urgent][static_cast<std::size_t>(peer)];
    const bool counts = last.sequence_plus_one != 0 && last.sequence_plus_one <= sequence + 1;
    return counts && last.when > since ? std::optional(last.awaited) : std::nullopt;
  }

 private:
  struct Told {
    std::uint64_t sequence_plus_one = 0;  // 0: nothing.
    int awaited = 0;
    Nanos when = 0;
  };
  std::array<std::vector<Told>, 2> told_;  // By peer.
};

}  // namespace lockstep::internal
