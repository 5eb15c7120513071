// ReadyTracker under eight threads: each bucket is reported full exactly once, after all that was written for
// it.
#include "ddp/ready_tracker.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

namespace lockstep::internal {
namespace {

BucketPlan plan_of(const std::vector<std::vector<std::size_t>>& members) {
  BucketPlan plan;
  for (const auto& bucket : members) {
    plan.buckets.emplace_back();
    for (const std::size_t i : bucket) plan.buckets.back().parts.push_back({.parameter = i});
  }
  return plan;
}

using Mark = ReadyTracker::Mark;

TEST(ReadyTracker, CountsABucketDown) {
  ReadyTracker tracker(plan_of({{2, 0}, {1}}), 3);
  EXPECT_EQ(tracker.mark(0, true), Mark::last);
  EXPECT_EQ(tracker.mark(0, true), Mark::surplus);
  EXPECT_FALSE(tracker.settled());
  EXPECT_FALSE(tracker.complete(0));
  EXPECT_TRUE(tracker.settled());
  EXPECT_FALSE(tracker.full(0));
  EXPECT_EQ(tracker.unmarked(), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(tracker.mark(2, true), Mark::last);
  EXPECT_TRUE(tracker.complete(0));
  EXPECT_TRUE(tracker.full(0));
  EXPECT_FALSE(tracker.full(1));
  tracker.reset();
  EXPECT_FALSE(tracker.full(0));
  EXPECT_EQ(tracker.unmarked().size(), 3u);
}

TEST(ReadyTracker, CountsASplitParameterInAllItsBuckets) {
  ReadyTracker tracker(plan_of({{0}, {0}, {0, 1}}), 2);
  EXPECT_EQ(tracker.mark(0, true), Mark::last);
  EXPECT_TRUE(tracker.complete(0));
  EXPECT_TRUE(tracker.full(0));
  EXPECT_FALSE(tracker.full(1));
  EXPECT_FALSE(tracker.settled());
  EXPECT_TRUE(tracker.complete(1));
  EXPECT_FALSE(tracker.complete(2));
  EXPECT_TRUE(tracker.settled());
}

TEST(ReadyTracker, ExpectsNothingOfParametersOutsideThePlan) {
  ReadyTracker tracker(plan_of({{1}}), 3);
  EXPECT_FALSE(tracker.expects(0));
  EXPECT_EQ(tracker.mark(2, true), Mark::unexpected);
  EXPECT_EQ(tracker.unmarked(), (std::vector<std::size_t>{1}));
}

TEST(ReadyTracker, LearnsHowOftenParametersAreMarked) {
  ReadyTracker tracker(plan_of({{0, 1}, {2}}), 3);
  tracker.learn();
  for (const std::size_t i : {0u, 2u, 0u}) EXPECT_EQ(tracker.mark(i, true), Mark::awaited);
  tracker.adopt();
  tracker.reset();
  EXPECT_FALSE(tracker.expects(1));
  EXPECT_EQ(tracker.mark(0, true), Mark::awaited);
  EXPECT_EQ(tracker.mark(1, true), Mark::unexpected);
  EXPECT_EQ(tracker.mark(0, true), Mark::last);
  EXPECT_TRUE(tracker.complete(0)) << "parameter 1 is not expected";
  EXPECT_EQ(tracker.unmarked(), (std::vector<std::size_t>{2}));
}

TEST(ReadyTracker, TakesNoMarksOnceItIsClosed) {
  ReadyTracker tracker(plan_of({{0, 1}}), 2);
  EXPECT_EQ(tracker.mark(0, false), Mark::last);
  EXPECT_FALSE(tracker.complete(0));
  tracker.close();
  for (const std::size_t i : {0u, 1u}) EXPECT_EQ(tracker.mark(i, true), Mark::late);
  EXPECT_FALSE(tracker.has_gradient(0));
  EXPECT_FALSE(tracker.has_gradient(1));
  EXPECT_EQ(tracker.unmarked(), (std::vector<std::size_t>{1}));
  EXPECT_TRUE(tracker.settled());
  tracker.reset();
  EXPECT_EQ(tracker.mark(0, true), Mark::last);
  EXPECT_TRUE(tracker.has_gradient(0));
}

TEST(ReadyTracker, IsClosedUntilItIsResetThoughItBecomesAnother) {
  ReadyTracker tracker(plan_of({{0, 1}}), 2);
  tracker.close();
  tracker.become(ReadyTracker(plan_of({{1}, {0}}), 2));
  EXPECT_EQ(tracker.mark(0, true), Mark::late);
  tracker.reset();
  EXPECT_EQ(tracker.mark(0, true), Mark::last);
  EXPECT_TRUE(tracker.complete(1));
}

TEST(ReadyTracker, ReportsEachBucketOnceUnderThreads) {
  constexpr std::size_t kThreads = 8, kBuckets = 16, kPerBucket = 8, kParameters = kBuckets * kPerBucket;
  std::vector<std::vector<std::size_t>> members(kBuckets);
  for (std::size_t i = 0; i < kParameters; ++i) members[i % kBuckets].push_back(i);
  ReadyTracker tracker(plan_of(members), kParameters);

  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::size_t> order(kParameters);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int> written(kParameters);  // Plain memory: the tracker must order it.
    std::vector<std::atomic<int>> reports(kBuckets);
    std::atomic<int> lasts{0};

    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        // Each parameter is tried by two threads; one of them gets it.
        for (std::size_t k = 0; k < 2 * kParameters / kThreads; ++k) {
          const std::size_t i = order[(t * kParameters / kThreads + k) % kParameters];
          if (tracker.mark(i, true) != Mark::last) continue;
          ++lasts;
          written[i] = 1;
          if (!tracker.complete(i % kBuckets)) continue;
          ++reports[i % kBuckets];
          for (const std::size_t j : members[i % kBuckets]) EXPECT_EQ(written[j], 1);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(lasts, static_cast<int>(kParameters));
    for (const auto& count : reports) EXPECT_EQ(count, 1);
    tracker.reset();
  }
}

}  // namespace
}  // namespace lockstep::internal
