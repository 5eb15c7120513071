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

TEST(ReadyTracker, CountsABucketDown) {
  ReadyTracker tracker(plan_of({{2, 0}, {1}}));
  EXPECT_TRUE(tracker.claim(0));
  EXPECT_FALSE(tracker.claim(0));
  EXPECT_FALSE(tracker.complete(0));
  EXPECT_FALSE(tracker.full(0));
  EXPECT_EQ(tracker.unclaimed(), (std::vector<std::size_t>{1, 2}));
  EXPECT_TRUE(tracker.claim(2));
  EXPECT_TRUE(tracker.complete(2));
  EXPECT_TRUE(tracker.full(0));
  EXPECT_FALSE(tracker.full(1));
  tracker.reset();
  EXPECT_FALSE(tracker.full(0));
  EXPECT_EQ(tracker.unclaimed().size(), 3u);
}

TEST(ReadyTracker, ReportsEachBucketOnceUnderThreads) {
  constexpr std::size_t kThreads = 8, kBuckets = 16, kPerBucket = 8, kParameters = kBuckets * kPerBucket;
  std::vector<std::vector<std::size_t>> members(kBuckets);
  for (std::size_t i = 0; i < kParameters; ++i) members[i % kBuckets].push_back(i);
  ReadyTracker tracker(plan_of(members));

  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::size_t> order(kParameters);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int> written(kParameters);  // Plain memory: the tracker must order it.
    std::vector<std::atomic<int>> reports(kBuckets);
    std::atomic<int> claims{0};

    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        // Each parameter is tried by two threads; one of them gets it.
        for (std::size_t k = 0; k < 2 * kParameters / kThreads; ++k) {
          const std::size_t i = order[(t * kParameters / kThreads + k) % kParameters];
          if (!tracker.claim(i)) continue;
          ++claims;
          written[i] = 1;
          if (!tracker.complete(i)) continue;
          ++reports[i % kBuckets];
          for (const std::size_t j : members[i % kBuckets]) EXPECT_EQ(written[j], 1);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(claims, static_cast<int>(kParameters));
    for (const auto& count : reports) EXPECT_EQ(count, 1);
    tracker.reset();
  }
}

}  // namespace
}  // namespace lockstep::internal
