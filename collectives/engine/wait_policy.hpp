// How long a waiter spins, yields, and when it sleeps.
#pragma once

#include <string>

#include "lib/base/env.hpp"

namespace lockstep {
struct CallOptions;
}  // namespace lockstep

namespace lockstep::internal {

struct EngineGroup;

/// Pauses between the tries of a called operation alone, before anything else is looked at (shared memory
/// only). About 4 us: an operation of up to 100 KiB whose peers are on time ends within it, and no yield
/// (0.3 us when nobody else runs) delays it.
inline constexpr int kInlinePauses = 200;
/// Yields between them: turns for the ranks that share this core, before the slower loop takes over.
inline constexpr int kInlineYields = 32;
/// Pauses for ranks on other cores while some share this one, as ProcessorWatch::may_be_kept() finds.
inline constexpr int kKeptPauses = 100;

struct WaitPolicy {
  bool inline_yields = false;  ///< Between the first tries: sched_yield where it helps, or else a pause.
  Nanos spin = 0;              ///< Then passes with a pause between.
  Nanos yield = 0;             ///< Then passes with sched_yield between. Then sleep.
};

/// Whether every rank of a host can have a core to itself: no set of cores is the only place of more ranks
/// than it has cores. Looks at each rank's own set and at all together, which is exact for ranks that are
/// bound to a core, to disjoint groups of cores, or not at all. Equal on all ranks.
bool a_core_each(const EngineGroup& group, const std::string& host);

/// Whether `host` has a core beyond one for each of its ranks. Equal on all ranks.
bool more_cores_than_ranks(const EngineGroup& group, const std::string& host);

/// Spins only when the ranks on this host fit the cores this process may use: a spinner in a waiting peer's
/// place costs that peer a scheduler tick. `measured` is how long it pays on this machine, 0: nobody knows.
/// LOCKSTEP_SPIN overrides.
WaitPolicy wait_policy(const EngineGroup& group, Nanos measured);

/// How long a call may take that does not say: LOCKSTEP_TIMEOUT; 0 = for ever.
Nanos default_timeout();
/// How long a call with these options may take; 0 = for ever. A limit below 0 has passed already, and one of
/// centuries is no shorter for not fitting.
Nanos timeout_of(const CallOptions& options);

/// Between two tries that do not yield.
void relax();

/// Yields, and notices when the processor went not to a rank that shares it but to a program that wants all
/// it can get: that keeps it for a turn of the scheduler, milliseconds, each time, while who sleeps is woken
/// in its midst (docs/where-time-goes.md has figures). One long yield alone says nothing: the host of a
/// virtual machine takes processors away, too, and for that nobody has to sleep. Nor is a rank that computes
/// for a moment such a program: the sleeps are few at first.
class Yielder {
 public:
  explicit Yielder(Env& env) : env_(env) {}
  void yield();
  /// Whether to sleep instead. Now and then it says no, to see whether the program is still there.
  bool prefers_sleep() { return sleeps_left_ > 0 && sleeps_left_-- > 0; }

 private:
  static constexpr int kFewSleeps = 16;

  Env& env_;
  int sleeps_left_ = 0, next_sleeps_ = kFewSleeps;
  int suspicious_ = 0;  // Yields for which the last long one is remembered.
};

/// Says after each idle pass what to do next.
class Backoff {
 public:
  enum class Advice { again, sleep };
  Backoff(const WaitPolicy& policy, Env& env, Yielder& yielder)
      : policy_(policy), env_(env), yielder_(yielder) {}
  void reset() { since_ = 0; }
  /// After a sleep: yield some more, but do not spin again.
  void woken() { since_ = env_.now() - policy_.spin - policy_.yield / 2; }
  /// `yield`: somebody needs this processor now.
  Advice idle(bool yield);

 private:
  const WaitPolicy policy_;
  Env& env_;
  Yielder& yielder_;
  Nanos since_ = 0;      // First idle pass in a row; 0 = none yet.
  unsigned passes_ = 0;  // While spinning.
};

}  // namespace lockstep::internal
