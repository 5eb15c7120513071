// When a waiter that shares its processor stops yielding.
#include "collectives/engine/wait_policy.hpp"

#include <gtest/gtest.h>

namespace lockstep::internal {
namespace {

/// Every look at the clock finds `step` gone by.
class SteppingClock final : public Env {
 public:
  Nanos step = 0;
  Nanos now() noexcept override { return time_ += step; }
  std::uint64_t random() noexcept override { return 0; }
  void wake_at(Nanos) noexcept override {}

 private:
  Nanos time_ = 1;
};

constexpr Nanos kMicro = 1000, kMilli = 1'000'000;

TEST(Yielder, GoesOnWhileTheProcessorComesBackSoon) {
  SteppingClock clock;
  Yielder yielder(clock);
  clock.step = 100 * kMicro;
  for (int i = 0; i < 100; ++i) yielder.yield();
  EXPECT_FALSE(yielder.prefers_sleep());
}

/// `times` yields, each of which lasts `each`.
void yield_for(Yielder& yielder, SteppingClock& clock, Nanos each, int times) {
  clock.step = each;
  for (int i = 0; i < times; ++i) yielder.yield();
}

TEST(Yielder, ALongYieldNowAndThenIsNoReasonToSleep) {
  SteppingClock clock;
  Yielder yielder(clock);
  for (int i = 0; i < 10; ++i) {
    yield_for(yielder, clock, 5 * kMilli, 1);
    yield_for(yielder, clock, kMicro, 20);
    EXPECT_FALSE(yielder.prefers_sleep());
  }
}

TEST(Yielder, SleepsAfterYieldsThatLastedATurnOfTheScheduler) {
  SteppingClock clock;
  Yielder yielder(clock);
  yield_for(yielder, clock, 3 * kMilli, 1);
  yield_for(yielder, clock, kMicro, 3);
  EXPECT_FALSE(yielder.prefers_sleep());
  yield_for(yielder, clock, 3 * kMilli, 1);
  EXPECT_TRUE(yielder.prefers_sleep());
}

/// How often it prefers sleep, at a stretch.
int sleeps(Yielder& yielder) {
  int count = 0;
  while (yielder.prefers_sleep()) ++count;
  return count;
}

TEST(Yielder, SleepsMoreAndMoreWhileYieldsStayDear) {
  SteppingClock clock;
  Yielder yielder(clock);
  yield_for(yielder, clock, 3 * kMilli, 2);
  const int first = sleeps(yielder);
  EXPECT_LE(first, 100) << "a rank may have computed for a moment";
  for (int i = 0; i < 10; ++i) {
    yield_for(yielder, clock, 3 * kMilli, 1);
    sleeps(yielder);
  }
  yield_for(yielder, clock, 3 * kMilli, 1);
  const int last = sleeps(yielder);
  EXPECT_GE(last, 500) << "a yield in vain is dear";
  EXPECT_LE(last, 10'000) << "the program may have ended meanwhile";
  yield_for(yielder, clock, kMicro, 100);
  yield_for(yielder, clock, 3 * kMilli, 2);
  EXPECT_EQ(sleeps(yielder), first) << "as if for the first time";
}

TEST(Backoff, WhereYieldsAreDearItSleepsAtOnce) {
  SteppingClock clock;
  Yielder yielder(clock);
  const WaitPolicy policy{.inline_yields = true, .spin = 0, .yield = 100 * kMilli};
  clock.step = 3 * kMilli;
  Backoff backoff(policy, clock, yielder);
  EXPECT_EQ(backoff.idle(true), Backoff::Advice::again);
  EXPECT_EQ(backoff.idle(true), Backoff::Advice::again);
  EXPECT_EQ(backoff.idle(true), Backoff::Advice::sleep);
}

}  // namespace
}  // namespace lockstep::internal
