// Point-to-point messages on simulated networks: order, tags, any source, long and short, beside collectives,
// and faults.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/sim_world.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kSizes[] = {0, 1, kEagerBytes, kEagerBytes + 1, 20'000};

SimWorldOptions options_of(std::uint64_t seed) {
  SimWorldOptions options;
  options.world = 2 + static_cast<int>(seed % 4);
  options.seed = seed;
  options.network.links.in_flight = 1 + seed * 500;
  options.network.links.delivery = seed % 7 == 0 ? SimDelivery::bytewise : SimDelivery::split;
  options.network.domain = seed % 2 == 0;
  options.concurrency = 64;
  return options;
}

class SimMessages : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(SimMessages, OfOneTagArriveInOrderAndOfOthersWhenAskedFor) {
  const SimWorldOptions options = options_of(GetParam());
  SimWorld world(options);
  for (int rank = 0; rank < options.world; ++rank) {
    const int next = (rank + 1) % options.world, previous = (rank + options.world - 1) % options.world;
    for (const int tag : {1, 2}) {
      for (const std::size_t size : kSizes) world.add(rank, SimMessage{true, next, tag, size});
    }
    for (const int tag : {2, 1}) {  // not the order in which they are sent
      for (const std::size_t size : kSizes) world.add(rank, SimMessage{false, previous, tag, size});
    }
  }
  ASSERT_EQ(world.run_and_check(), "");
}

TEST_P(SimMessages, AreTakenFromAnySourceWithAnyTag) {
  const SimWorldOptions options = options_of(GetParam());
  SimWorld world(options);
  for (int rank = 1; rank < options.world; ++rank) {
    for (const std::size_t size : kSizes) {
      world.add(rank, SimMessage{true, 0, rank, size});
      world.add(0, SimMessage{false, kAnySource, kAnyTag, 30'000});
    }
  }
  ASSERT_EQ(world.run_and_check(), "");
}

TEST_P(SimMessages, TravelBesideCollectives) {
  const SimWorldOptions options = options_of(GetParam());
  SimWorld world(options);
  for (int i = 0; i < 10; ++i) {
    SimCall call;
    call.what.world = options.world;
    call.what.count = 700;
    world.add(call);
    for (int rank = 0; rank < options.world; ++rank) {
      world.add(rank, SimMessage{false, (rank + 1) % options.world, i, 9'000});
      world.add(rank, SimMessage{true, (rank + options.world - 1) % options.world, i, 9'000});
    }
  }
  ASSERT_EQ(world.run_and_check(), "");
}

TEST_P(SimMessages, OfADeadRankEndWithItsName) {
  SimWorldOptions options = options_of(GetParam());
  options.concurrency = 1;
  SimWorld world(options);
  for (int i = 0; i < 1'000; ++i) {
    for (int rank = 1; rank < options.world; ++rank) {
      world.add(rank, SimMessage{true, 0, 0, 6'000});
      world.add(0, SimMessage{false, rank, 0, 6'000});
    }
  }
  world.schedule().at(static_cast<Nanos>(GetParam() * 100'000), [&] { world.schedule().crash(1); });
  ASSERT_TRUE(world.run(30 * kVirtualSecond));
  for (int rank = 0; rank < options.world; ++rank) {
    if (rank == 1) continue;
    const auto& all = world.outcomes(rank);
    const auto failed =
        std::find_if(all.begin(), all.end(), [](const SimOutcome& o) { return !o.status.ok(); });
    ASSERT_NE(failed, all.end()) << "rank " << rank;
    EXPECT_EQ(failed->status.code(), ErrorCode::peer_lost)
        << "rank " << rank << ": " << failed->status.message();
    EXPECT_EQ(failed->status.culprit(), 1) << "rank " << rank << ": " << failed->status.message();
  }
}

TEST_P(SimMessages, TellAtTheirDeadlineWhichCallTheOtherMade) {
  SimWorldOptions options = options_of(GetParam());
  options.world = 2;
  for (const int source : {1, kAnySource}) {
    SimWorld world(options);
    SimCall barrier;
    barrier.what.collective = Collective::barrier;
    barrier.what.world = options.world;
    world.add(1, barrier);
    world.add(0, SimMessage{false, source, 0, 100, kVirtualSecond});
    ASSERT_TRUE(world.run(10 * kVirtualSecond));
    const Status& status = world.outcomes(0).front().status;
    EXPECT_EQ(status.code(), ErrorCode::timeout);
    EXPECT_NE(status.message().find("; " + world.engine(0).who(1) +
                                    " has called barrier #0, which this rank has not\n"),
              std::string::npos)
        << status.message();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimMessages, ::testing::Range<std::uint64_t>(1, 21));

}  // namespace
}  // namespace lockstep::internal
