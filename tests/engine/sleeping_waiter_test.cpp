// Who waits and the reactor share one doorbell.
#include <gtest/gtest.h>

#include <thread>

#include "collectives/communicator_core.hpp"
#include "lockstep/lockstep.hpp"

namespace lockstep {
namespace {

TEST(SleepingWaiter, TheReactorLeavesItsDeclarationAlone) {
  auto group = Communicator::local_group(2, "shm");
  internal::Engine& engine = group[0].core().engine();
  const auto& asleep = engine.transport()->domain()->control(0).doorbell.asleep;
  float mine = 1, other = 2;
  std::thread waiter([&] { group[0].all_reduce(&mine, &mine, 1, DataType::f32, ReduceOp::sum); });
  while (asleep.load() == 0) std::this_thread::yield();
  constexpr std::uint32_t kInPoll = 2;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(engine.arm(), -1);
    EXPECT_NE(asleep.load(), kInPoll);
  }
  group[1].all_reduce(&other, &other, 1, DataType::f32, ReduceOp::sum);
  waiter.join();
  EXPECT_EQ(mine, 3);
}

}  // namespace
}  // namespace lockstep
