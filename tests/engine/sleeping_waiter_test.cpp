// Who waits and the reactor share one doorbell.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "collectives/communicator_core.hpp"
#include "lockstep/lockstep.hpp"
#include "tests/support/eventually.hpp"

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

/// Rank 0's operator stays until it may end.
struct Stay {
  std::atomic<bool> inside{false}, may_end{false};
  static void combine(const void*, void*, std::size_t, void* context) {
    auto* const stay = static_cast<Stay*>(context);
    if (stay == nullptr) return;
    stay->inside.store(true);
    EXPECT_TRUE(testing::eventually([&] { return stay->may_end.load(); }, 3 * testing::kPatience));
  }
};

// All connections of the process are made by the reactor.
TEST(SleepingWaiter, TheReactorWaitsForNoUsersOperator) {
  auto group = Communicator::local_group(2, "shm");
  internal::Engine& engine = group[0].core().engine();
  const auto& asleep = engine.transport()->domain()->control(0).doorbell.asleep;
  Stay stay;
  const auto reduce = [&](int rank) {
    CallOptions options;
    options.user_op.combine = Stay::combine;
    options.user_op.context = rank == 0 ? &stay : nullptr;
    float x = 1;
    group[static_cast<std::size_t>(rank)].all_reduce(&x, &x, 1, DataType::f32, ReduceOp::user, options);
  };
  EXPECT_GE(engine.arm(), 0);
  std::thread first(reduce, 0), second(reduce, 1);
  EXPECT_TRUE(testing::eventually([&] { return stay.inside.load(); }));
  std::atomic<bool> disarmed{false};
  std::thread disarms([&] {
    engine.disarm();
    disarmed.store(true);
  });
  EXPECT_TRUE(testing::eventually([&] { return disarmed.load(); }));
  stay.may_end.store(true);
  for (std::thread* thread : {&first, &second, &disarms}) thread->join();
  engine.progress();
  EXPECT_EQ(asleep.load(), 0u) << "peers would ring at every message";
}

}  // namespace
}  // namespace lockstep
