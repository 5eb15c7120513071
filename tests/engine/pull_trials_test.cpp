// Which way calls on private memory take, by what both took the ranks.
#include "collectives/engine/pull_trials.hpp"

#include <gtest/gtest.h>

namespace lockstep::internal {
namespace {

class Clock final : public Env {
 public:
  Nanos now() noexcept override { return time; }
  std::uint64_t random() noexcept override { return 0; }
  void wake_at(Nanos) noexcept override {}
  Nanos time = 1;
};

/// Two ranks that make the same calls, of which the second one takes longer.
class TwoRanks {
 public:
  /// One call; whether it was pulled.
  bool call(Nanos staged, Nanos pulled, bool can = true) {
    const bool first = first_.vote(), second = can && second_.vote();
    const bool votes = first && second;
    if (first_.is_told()) first_.hear(std::max(first_.took(), second_.took()));
    if (second_.is_told()) second_.hear(std::max(first_.took(), second_.took()));
    for (PullTrial* const rank : {&first_, &second_}) {
      rank->begin(votes);
      clock_.time += (votes ? pulled : staged) / (rank == &first_ ? 2 : 1);
      rank->end();
    }
    return votes;
  }
  bool first_is_told() const { return first_.is_told(); }

 private:
  Clock clock_;
  PullTrial first_{clock_}, second_{clock_};
};

/// Calls of a round, and before the next one at first and at last.
constexpr int kTrials = 6, kShortestRest = 4, kLongestRest = 512;

TEST(PullTrials, TheFasterWayIsTaken) {
  for (const bool pulling_wins : {false, true}) {
    TwoRanks ranks;
    const auto call = [&] { return pulling_wins ? ranks.call(20'000, 10'000) : ranks.call(10'000, 20'000); };
    for (int trial = 0; trial < kTrials; ++trial) EXPECT_EQ(call(), trial >= kTrials / 2);
    for (int i = kTrials; i < kTrials + kShortestRest; ++i) EXPECT_EQ(call(), pulling_wins) << i;
  }
}

TEST(PullTrials, AreMadeAgainAndHeedWhatHasChanged) {
  TwoRanks ranks;
  for (int i = 0; i < kTrials + kShortestRest; ++i) ranks.call(20'000, 10'000);
  for (int trial = 0; trial < kTrials; ++trial) EXPECT_EQ(ranks.call(10'000, 20'000), trial >= kTrials / 2);
  ranks.call(10'000, 20'000);  // Which tells what the last one took.
  EXPECT_FALSE(ranks.call(10'000, 20'000));
}

TEST(PullTrials, AreSeldomInTheEnd) {
  TwoRanks ranks;
  for (int i = 0; i < 8 * kLongestRest; ++i) ranks.call(10'000, 20'000);
  int pulled = 0;
  for (int i = 0; i < kTrials + kLongestRest; ++i) pulled += ranks.call(10'000, 20'000) ? 1 : 0;
  EXPECT_EQ(pulled, kTrials / 2);
}

TEST(PullTrials, OneThatWasInterruptedDoesNotDecide) {
  TwoRanks ranks;
  for (int i = 0; i < kTrials; ++i) ranks.call(20'000, i == 3 ? 4'000'000 : 10'000);
  ranks.call(20'000, 10'000);
  EXPECT_TRUE(ranks.call(20'000, 10'000));
}

TEST(PullTrials, WhatIsHardlyFasterIsNotWorthIt) {
  TwoRanks ranks;
  for (int i = 0; i < kTrials + 1; ++i) ranks.call(20'000, 19'000);
  EXPECT_FALSE(ranks.call(20'000, 19'000));
}

/// As of a rank that may not read the others' memory.
TEST(PullTrials, WhereOneRankCannotNobodyAsksAgainSoon) {
  TwoRanks ranks;
  for (int i = 0; i < kTrials / 2; ++i) EXPECT_FALSE(ranks.call(20'000, 10'000, false));
  for (int i = 0; i < kLongestRest; ++i) {
    EXPECT_FALSE(ranks.call(20'000, 10'000, false));
    EXPECT_FALSE(ranks.first_is_told()) << i;
  }
  EXPECT_FALSE(ranks.call(20'000, 10'000, false));
  EXPECT_TRUE(ranks.first_is_told());
}

/// As of a rank whose input, for once, is no memory that others can read.
TEST(PullTrials, AfterALongRestItIsAskedWhetherItCanByNow) {
  TwoRanks ranks;
  for (int i = 0; i < 2 * kTrials; ++i) ranks.call(20'000, 10'000, i != kTrials);
  EXPECT_FALSE(ranks.call(20'000, 10'000));
  for (int i = 0; i < kLongestRest + kTrials; ++i) ranks.call(20'000, 10'000);
  EXPECT_TRUE(ranks.call(20'000, 10'000));
}

}  // namespace
}  // namespace lockstep::internal
