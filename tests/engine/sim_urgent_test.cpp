// Urgent calls beside others on simulated networks: every mix ends right, with hardly any room in the links,
// and what is urgent comes first. Faults amid such mixes are in sim_faults_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/algorithm_cases.hpp"
#include "tests/engine/sim_world.hpp"

namespace lockstep::internal {
namespace {

/// Every algorithm over links that supports the world, in random order, some of them urgent.
std::vector<SimCall> random_mix(int world, SimRandom& random, std::size_t most_elements) {
  const auto ranks = static_cast<std::uint64_t>(world);
  std::vector<SimCall> calls;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.medium != Medium::links) continue;
    SimCall call;
    call.what.collective = algorithm.collective;
    call.what.world = world;
    call.what.root = static_cast<int>(random.below(ranks));
    call.what.count = random.below(most_elements);
    call.what.seed = random.next();
    call.algorithm = number_of(algorithm);
    call.priority = random.one_in(2) ? 1 : 0;
    if (algorithm.supports(shape_of(call.what, 0))) calls.push_back(call);
  }
  for (std::size_t i = calls.size(); i > 1; --i) std::swap(calls[i - 1], calls[random.below(i)]);
  return calls;
}

class UrgentMix : public ::testing::TestWithParam<int> {};

TEST_P(UrgentMix, OfAllAlgorithmsEndsRight) {
  const std::uint64_t seeds = GetParam() <= 6 ? 4 : 1;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SimRandom random(seed * 100 + static_cast<std::uint64_t>(GetParam()));
    SimWorldOptions options;
    options.world = GetParam();
    options.seed = random.next();
    options.network.links.in_flight = 1 + random.below(seed % 2 == 0 ? 100 : 5'000);
    options.concurrency = 2 + static_cast<int>(random.below(12));
    SimWorld world(options);
    const auto calls = random_mix(options.world, random, 100);
    ASSERT_TRUE(std::any_of(calls.begin(), calls.end(), [](const SimCall& c) { return c.priority > 0; }));
    for (const SimCall& call : calls) world.add(call);
    EXPECT_EQ(world.run_and_check(), "") << "seed " << seed;
  }
}

class UrgentMixInNoRoom : public UrgentMix {};

TEST_P(UrgentMixInNoRoom, EndsRight) {
  SimRandom random(static_cast<std::uint64_t>(GetParam()));
  SimWorldOptions options;
  options.world = GetParam();
  options.network.links.delivery = SimDelivery::bytewise;
  options.network.links.in_flight = 1;
  options.concurrency = 8;
  SimWorld world(options);
  for (const SimCall& call : random_mix(options.world, random, 8)) world.add(call);
  EXPECT_EQ(world.run_and_check(), "");
}

INSTANTIATE_TEST_SUITE_P(Sim, UrgentMix, ::testing::Range(2, 17), ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Sim, UrgentMixInNoRoom, ::testing::Values(2, 3, 4, 5, 8),
                         ::testing::PrintToStringParamName());

SimCall all_reduce(int world, std::size_t count, int priority) {
  SimCall call;
  call.what.world = world;
  call.what.count = count;
  call.priority = priority;
  return call;
}

/// On every rank the urgent call, which started last, ended before all others.
void expect_last_ends_first(const SimWorld& world, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    const auto& outcomes = world.outcomes(rank);
    for (std::size_t i = 0; i + 1 < outcomes.size(); ++i)
      EXPECT_LT(outcomes.back().ended, outcomes[i].ended) << "rank " << rank << ", call " << i;
  }
}

TEST(UrgentCall, OvertakesALongOneThatStartedBefore) {
  for (int ranks = 2; ranks <= 5; ++ranks) {
    SimWorldOptions options;
    options.world = ranks;
    options.network.links.in_flight = 4'000;
    options.concurrency = 2;
    SimWorld world(options);
    world.add(all_reduce(ranks, 200'000, 0));
    world.add(all_reduce(ranks, 2'000, 1));
    ASSERT_EQ(world.run_and_check(), "");
    expect_last_ends_first(world, ranks);
  }
}

TEST(UrgentCall, DoesNotQueueBehindAsManyAsMayRun) {
  SimWorldOptions options;
  options.world = 3;
  options.network.links.in_flight = 4'000;
  options.concurrency = static_cast<int>(2 * kMaxInFlight);
  SimWorld world(options);
  world.add(all_reduce(options.world, 200'000, 0));
  for (std::size_t i = 0; i < kMaxInFlight + 5; ++i) world.add(all_reduce(options.world, 1'000, 0));
  world.add(all_reduce(options.world, 1'000, 1));
  ASSERT_EQ(world.run_and_check(), "");
  expect_last_ends_first(world, options.world);
}

TEST(UrgentCall, KeepsTheOneOrderWhereRanksShareMemory) {
  SimWorldOptions options;
  options.world = 4;
  options.network.domain = true;
  options.concurrency = static_cast<int>(2 * kMaxInFlight);
  SimWorld world(options);
  for (std::size_t i = 0; i < 2 * kMaxInFlight; ++i)
    world.add(all_reduce(options.world, 2'000, static_cast<int>(i % 3)));
  ASSERT_EQ(world.run_and_check(), "");
  for (int rank = 0; rank < options.world; ++rank) {
    const auto& outcomes = world.outcomes(rank);
    EXPECT_TRUE(std::is_sorted(outcomes.begin(), outcomes.end(),
                               [](const SimOutcome& a, const SimOutcome& b) { return a.ended < b.ended; }));
  }
}

}  // namespace
}  // namespace lockstep::internal
