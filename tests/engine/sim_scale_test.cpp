// Many operations at once, many ranks, and that a seed replays.
#include <gtest/gtest.h>

#include <set>

#include "tests/engine/algorithm_cases.hpp"
#include "tests/engine/sim_world.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::internal {
namespace {

SimCall any_call(SimRandom& random, int world) {
  constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::i64, DataType::u8};
  constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg};
  SimCall call;
  call.what.collective = static_cast<Collective>(random.below(kCollectiveCount));
  call.what.type = kTypes[random.below(4)];
  call.what.op = kOps[random.below(5)];
  call.what.world = world;
  call.what.root = static_cast<int>(random.below(static_cast<std::uint64_t>(world)));
  call.what.count = random.below(random.one_in(4) ? 5'000 : 50);
  call.what.seed = random.next() % 1'000;
  call.in_place = random.one_in(2);
  call.registered = random.one_in(2);
  return call;
}

struct Memory {
  const char* name;
  bool domain;
};

class Mixed : public ::testing::TestWithParam<Memory> {
 protected:
  SimWorldOptions options(std::uint64_t seed) const {
    SimWorldOptions result;
    result.world = 2 + static_cast<int>(seed % 6);
    result.seed = seed;
    result.network.links.in_flight = 64 + seed * 100;
    result.network.domain = GetParam().domain;
    result.concurrency = 8;
    return result;
  }
  static void add_calls(SimWorld& world, const SimWorldOptions& options, int count) {
    SimRandom random(options.seed);
    for (int i = 0; i < count; ++i) world.add(any_call(random, options.world));
  }
};

TEST_P(Mixed, OperationsSideBySideAreAllRight) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    const SimWorldOptions chosen = options(seed);
    SimWorld world(chosen);
    add_calls(world, chosen, 40);
    EXPECT_EQ(world.run_and_check(), "") << "seed " << seed;
  }
}

TEST_P(Mixed, ASeedReplaysAndSeedsDiffer) {
  std::set<std::uint64_t> hashes;
  for (const std::uint64_t seed : {1, 2, 3, 1, 2, 3}) {
    SimWorldOptions chosen = options(seed);
    chosen.world = 5;
    SimWorld world(chosen);
    SimRandom same_calls(99);
    for (int i = 0; i < 20; ++i) world.add(any_call(same_calls, chosen.world));
    world.schedule().at(kVirtualMillisecond / 10, [&] { world.schedule().crash(2); });
    EXPECT_TRUE(world.run());
    hashes.insert(world.schedule().hash());
  }
  EXPECT_EQ(hashes.size(), 3U);
}

TEST_P(Mixed, RanksMayMixRegisteredAndPrivateBuffers) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const SimWorldOptions chosen = options(seed);
    SimWorld world(chosen);
    SimRandom random(seed);
    for (int i = 0; i < 20; ++i) {
      SimCall call = any_call(random, chosen.world);
      for (int rank = 0; rank < chosen.world; ++rank) {
        call.registered = random.one_in(2);
        call.in_place = random.one_in(2);
        world.add(rank, call);
      }
    }
    EXPECT_EQ(world.run_and_check(), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Sim, Mixed, ::testing::Values(Memory{"links", false}, Memory{"domain", true}),
                         [](const auto& tested) { return tested.param.name; });

/// A sanitizer has nothing more to see in more ranks, and a ring takes their number squared.
constexpr int kManyRanks = lockstep::testing::kSanitized ? 128 : 1024;

TEST(SimScale, AllReduceOfManyRanksByEachAlgorithm) {
  for (const char* algorithm : {"recursive_doubling", "ring"}) {
    const auto row = find_algorithm(Collective::all_reduce, Medium::links, algorithm);
    ASSERT_TRUE(row.ok()) << row.status().message();
    SimWorldOptions options;
    options.world = kManyRanks;
    options.network.links.delivery = SimDelivery::whole;
    SimWorld world(options);
    SimCall call;
    call.what.world = options.world;
    call.what.count = kManyRanks + 1;
    call.algorithm = number_of(*row.value());
    world.add(call);
    EXPECT_EQ(world.run_and_check(), "") << algorithm;
  }
}

}  // namespace
}  // namespace lockstep::internal
