// How long a waiter spins, yields, and when it sleeps.
#pragma once

#include "lib/base/env.hpp"

namespace lockstep::internal {

struct EngineGroup;

struct WaitPolicy {
  int inline_attempts = 0;  ///< Tries of the called operation alone, before anything else is looked at.
  int spins = 0;            ///< Idle passes with a pause between.
  int yields = 0;           ///< Then idle passes with sched_yield between.
};

/// Spins only when the ranks on this host fit the cores this process may use: a spinner in a waiting peer's
/// place costs that peer a scheduler tick. LOCKSTEP_SPIN overrides.
WaitPolicy wait_policy(const EngineGroup& group);

/// Counts idle passes and says what to do after each.
class Backoff {
 public:
  enum class Advice { again, sleep };
  explicit Backoff(const WaitPolicy& policy) : policy_(policy) {}
  void reset() { passes_ = 0; }
  /// After a sleep: yield some more, but do not spin again from the start.
  void woken() { passes_ = policy_.spins + policy_.yields / 2; }
  Advice idle();

 private:
  WaitPolicy policy_;
  int passes_ = 0;
};

}  // namespace lockstep::internal
