// A phase of a domain program as a kernel of one block: tells the members how far this rank's stream is, and
// waits until theirs are as far. What the stream did before the kernel is visible to who sees the phase; what
// it does after sees what the members did before theirs.
//
// Phases are counted from a base in device memory, which the last phase of a call raises: a graph that
// replays the call goes on where the one before ended.
#pragma once

#include "lib/device/sync/spin.hpp"

namespace lockstep::internal::sync {

inline constexpr int kMaxPhaseRanks = 128;

struct PhaseArguments {
  int rank, world;
  std::uint32_t* told[kMaxPhaseRanks];  ///< By member: this rank's word in its memory.
  std::uint32_t* heard;                 ///< Member 0's word in this rank's memory,
  std::uint32_t stride;                 ///< and the words from one member's to the next.
  std::uint32_t* base;                  ///< Device memory of this rank.
  std::uint32_t publish;                ///< 0: nothing is published.
  std::uint32_t await;                  ///< The phase awaited; 0: none.
  std::int32_t awaited;                 ///< A member, or -1: all.
  std::uint32_t advance;                ///< What the base rises by when the kernel ends.
  SpinBounds bounds;
};

/// Member `peer` is the part of thread `peer`. All publish before one awaits, where threads run one by one.
struct PhaseBody {
  static LOCKSTEP_BOTH void publish(const PhaseArguments& phase, int peer) {
    if (phase.publish != 0 && peer != phase.rank && peer < phase.world)
      store_word(phase.told[peer], *phase.base + phase.publish);
  }
  static LOCKSTEP_BOTH void await(const PhaseArguments& phase, int peer) {
    if (phase.await == 0 || peer == phase.rank || peer >= phase.world) return;
    if (phase.awaited >= 0 && phase.awaited != peer) return;
    const std::uint32_t wanted = *phase.base + phase.await;
    const std::uint32_t* const word = phase.heard + static_cast<std::uint32_t>(peer) * phase.stride;
    Spin spin(phase.bounds);
    spin.until(peer, [&] { return static_cast<std::int32_t>(load_word(word) - wanted) >= 0; });
  }
  /// After everything else, once.
  static LOCKSTEP_BOTH void end(const PhaseArguments& phase) { *phase.base += phase.advance; }
};

}  // namespace lockstep::internal::sync
