#include "collectives/engine/wait_policy.hpp"

#include <sched.h>

#include <algorithm>

#include "collectives/engine/engine.hpp"
#include "lib/base/config.hpp"

namespace lockstep::internal {
namespace {

// A few microseconds: a small operation whose peers are on time ends within it.
constexpr int kInlineAttempts = 60;
// Twice what a futex wake across cores costs (22 us): who waits longer loses little by sleeping.
constexpr Nanos kSpin = 50'000;
// Now and then a spinner yields all the same: the awaited rank may have been put on this very core.
constexpr unsigned kPassesPerYield = 16;
// As many turns as the other ranks need when they share the core; when nobody else runs it is a slower spin.
constexpr Nanos kYield = 150'000;

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

WaitPolicy wait_policy(const EngineGroup& group) {
  static const int cores = allowed_cores();
  if (config_is_set("LOCKSTEP_SPIN")) {
    const Nanos spin = config_integer("LOCKSTEP_SPIN") * 1000;
    return {spin > 0 ? kInlineAttempts : 0, spin, kYield};
  }
  const std::string& host = group.members[static_cast<std::size_t>(group.rank)].host_id;
  const auto local = std::count_if(group.members.begin(), group.members.end(),
                                   [&](const Member& m) { return m.host_id == host; });
  const bool spare = local <= cores;
  return {spare ? kInlineAttempts : 0, spare ? kSpin : 0, kYield};
}

Backoff::Advice Backoff::idle() {
  const Nanos now = env_.now();
  if (since_ == 0) since_ = now;
  const Nanos waited = now - since_;
  if (waited < policy_.spin && ++passes_ % kPassesPerYield != 0) {
    pause();
  } else if (waited < policy_.spin + policy_.yield) {
    sched_yield();
  } else {
    return Advice::sleep;
  }
  return Advice::again;
}

}  // namespace lockstep::internal
