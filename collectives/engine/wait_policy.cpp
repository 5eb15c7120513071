#include "collectives/engine/wait_policy.hpp"

#include <sched.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "collectives/engine/engine_group.hpp"
#include "lib/base/config.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::internal {
namespace {

// Twice what a futex wake across cores costs (22 us): who waits longer loses little by sleeping.
constexpr Nanos kSpin = 50'000;
// Now and then a spinner yields all the same: the awaited rank may have been put on this very core.
constexpr unsigned kPassesPerYield = 16;
// As many turns as the other ranks need when they share the core; when nobody else runs it is a slower spin.
constexpr Nanos kYield = 150'000;
// A rank that shares the core is done with its turn before that: it yields, too, when it waits.
constexpr Nanos kDearYield = 1'000'000;
// A second one among so many yields is no chance any more.
constexpr int kSuspicious = 16;
// Twice as many each time that yields are found dear again: a yield that was in vain costs as much as some
// hundred sleeps.
constexpr int kMostSleeps = 1024;

/// What is added to the time of day must not overflow.
Nanos nanos_of(std::int64_t milliseconds) {
  constexpr std::int64_t kMost = kForever / 2 / 1'000'000;
  return milliseconds < 0 ? 1 : std::min(milliseconds, kMost) * 1'000'000;
}

/// Where each rank of a host may run.
std::vector<CoreSet> cores_of_ranks(const EngineGroup& group, const std::string& host) {
  std::vector<CoreSet> ranks;
  for (const Member& member : group.members) {
    if (member.host_id == host) ranks.push_back(member.cores);
  }
  return ranks;
}

CoreSet united(const std::vector<CoreSet>& ranks) {
  return std::accumulate(ranks.begin(), ranks.end(), CoreSet(), std::bit_or<>());
}

}  // namespace

bool a_core_each(const EngineGroup& group, const std::string& host) {
  const std::vector<CoreSet> ranks = cores_of_ranks(group, host);
  const auto fit = [&](const CoreSet& cores) {
    return static_cast<std::size_t>(std::count_if(ranks.begin(), ranks.end(), [&](const CoreSet& rank) {
             return (rank & ~cores).none();
           })) <= cores.count();
  };
  return fit(united(ranks)) && std::all_of(ranks.begin(), ranks.end(), fit);
}

bool more_cores_than_ranks(const EngineGroup& group, const std::string& host) {
  const std::vector<CoreSet> ranks = cores_of_ranks(group, host);
  return united(ranks).count() > ranks.size();
}

WaitPolicy wait_policy(const EngineGroup& group, Nanos measured) {
  if (config_is_set("LOCKSTEP_SPIN")) {
    const Nanos spin = config_integer("LOCKSTEP_SPIN") * 1000;
    return {spin == 0, spin, kYield};
  }
  const bool spare = a_core_each(group, group.members[static_cast<std::size_t>(group.rank)].host_id);
  const Nanos spin = measured > 0 ? measured : kSpin;
  return {!spare, spare ? spin : 0, kYield};
}

Nanos default_timeout() {
  static const Nanos timeout = nanos_of(config_milliseconds("LOCKSTEP_TIMEOUT"));
  return timeout;
}

Nanos timeout_of(const CallOptions& options) {
  return options.timeout ? nanos_of(options.timeout->count()) : default_timeout();
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Yielder::yield() {
  const Nanos before = env_.now();
  sched_yield();
  if (env_.now() - before <= kDearYield) {
    suspicious_ = std::max(suspicious_ - 1, 0);
    if (suspicious_ == 0) next_sleeps_ = kFewSleeps;
  } else {
    if (suspicious_ > 0) {
      sleeps_left_ = next_sleeps_;
      next_sleeps_ = std::min(2 * next_sleeps_, kMostSleeps);
    }
    suspicious_ = kSuspicious;
  }
}

Backoff::Advice Backoff::idle(bool yield) {
  const Nanos now = env_.now();
  if (since_ == 0) since_ = now;
  const Nanos waited = now - since_;
  if (waited < policy_.spin && !yield && ++passes_ % kPassesPerYield != 0) {
    relax();
  } else if (waited < policy_.spin + policy_.yield && !yielder_.prefers_sleep()) {
    yielder_.yield();
  } else {
    return Advice::sleep;
  }
  return Advice::again;
}

}  // namespace lockstep::internal
