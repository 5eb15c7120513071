#include "collectives/engine/wait_policy.hpp"

#include <sched.h>

#include <algorithm>

#include "collectives/engine/engine.hpp"
#include "lib/base/config.hpp"

namespace lockstep::internal {
namespace {

// A few microseconds: a small operation whose peers are on time ends within it.
constexpr int kInlineAttempts = 200;
// About 50 us of passes at 25 ns; two thirds of a futex wake across cores is saved whenever the peer comes
// within it.
constexpr int kSpins = 2000;
// About 100 us of yields when nobody else runs, and as many turns as the other ranks need when they do.
constexpr int kYields = 200;

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
  static const int chosen =
      config_is_set("LOCKSTEP_SPIN") ? static_cast<int>(config_integer("LOCKSTEP_SPIN")) * 40 : -1;
  if (chosen >= 0) return {std::min(chosen, kInlineAttempts), chosen, kYields};
  const std::string& host = group.members[static_cast<std::size_t>(group.rank)].host_id;
  const auto local = std::count_if(group.members.begin(), group.members.end(),
                                   [&](const Member& m) { return m.host_id == host; });
  const bool spare = local <= cores;
  return {spare ? kInlineAttempts : 0, spare ? kSpins : 0, kYields};
}

Backoff::Advice Backoff::idle() {
  ++passes_;
  if (passes_ <= policy_.spins) {
    pause();
  } else if (passes_ <= policy_.spins + policy_.yields) {
    sched_yield();
  } else {
    return Advice::sleep;
  }
  return Advice::again;
}

}  // namespace lockstep::internal
