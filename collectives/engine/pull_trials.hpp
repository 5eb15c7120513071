// PullTrials: whether private memory is passed on through staging memory or pulled (CMA), as both were timed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "collectives/select/choice_table.hpp"
#include "collectives/select/pulling.hpp"
#include "lib/base/env.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal {

/// Calls of one collective and of about one size. Pulling spares a copy, but its copy is the kernel's, which
/// looks up every page: it takes half of the time or twice as much, by the collective, the size, the number
/// of ranks and how far apart their cores are (docs/where-time-goes.md). So both ways are tried, three
/// calls in a row each, because the first one finds what the other way left in the caches; and again: soon at
/// first, because what comes first is not like the rest, and after some hundred calls later.
///
/// Every rank tells in its next offer what a trial took it, and the slowest one counts, so that all come to
/// the same. Nothing but time depends on it: a call is pulled where every rank's own offer says so.
///
/// Two ways of a copy are tried likewise by lib/reduce/hand_over.hpp: by one rank, which knows at once and
/// asks nobody.
class PullTrial {
 public:
  explicit PullTrial(Env& env) : env_(&env) {}
  /// Whether this rank would have its next call pulled.
  bool vote() {
    const bool is_trial = turn_ < kTrials;
    return voted_ = is_trial ? turn_ >= kTrials / 2 : pulling_pays(pulled_, staged_);
  }
  /// Whether the members' offers tell what the call before took.
  bool is_told() const { return turn_ >= 1 && turn_ <= kTrials; }
  /// For this rank's offer: nanoseconds of the last trial.
  std::uint32_t took() const { return took_; }
  /// The most that any member's offer says; 0: none told.
  void hear(std::uint32_t slowest) {
    if (!is_told() || slowest == 0) return;
    const int trial = turn_ - 1;
    std::uint32_t& best = trial < kTrials / 2 ? staged_ : pulled_;
    best = trial % (kTrials / 2) == 0 ? slowest : std::min(best, slowest);
  }
  /// It is known what all ranks do.
  void begin(bool pulled) {
    runs_ = true;
    if (voted_ && !pulled) return give_up();
    if (turn_ < kTrials) began_ = env_->now();
  }
  /// This rank is through with it. Nothing for what did not begin.
  void end() {
    if (!std::exchange(runs_, false)) return;
    if (turn_ < kTrials)
      took_ = static_cast<std::uint32_t>(std::clamp<Nanos>(env_->now() - began_, 1, UINT32_MAX));
    if (++turn_ < kTrials + rest_) return;
    turn_ = 0;
    rest_ = std::min(2 * rest_, kLongestRest);
  }

 private:
  /// Some rank cannot read the others' memory, or its own is none that they can: not before a long rest
  /// again.
  void give_up() {
    turn_ = kTrials;
    rest_ = kLongestRest;
    pulled_ = std::numeric_limits<std::uint32_t>::max();
  }

  static constexpr int kTrials = 6;  ///< First staged, then pulled.
  /// Calls between the last trial and the next one: at first, and after some more trials.
  static constexpr int kShortestRest = 4, kLongestRest = 512;

  Env* env_;
  int turn_ = 0, rest_ = kShortestRest;
  bool voted_ = false, runs_ = false;
  Nanos began_ = 0;
  std::uint32_t took_ = 0;                 ///< This rank.
  std::uint32_t staged_ = 0, pulled_ = 0;  ///< All ranks, the best of three.
};

/// Of one communicator. Not thread-safe.
class PullTrials {
 public:
  /// Of a communicator without shared memory there are none. `env` outlives it.
  PullTrials(Env& env, bool has_domain)
      : trials_(has_domain ? kCollectiveCount * kSizeClasses : 0, PullTrial(env)) {}
  PullTrial& of(Collective collective, std::uint64_t bytes) {
    return trials_[static_cast<std::size_t>(static_cast<int>(collective) * kSizeClasses + size_class(bytes))];
  }

 private:
  std::vector<PullTrial> trials_;
};

}  // namespace lockstep::internal
