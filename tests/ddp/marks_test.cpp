// A million mark_ready calls from eight threads a rank, in random order: none is lost, no bucket either. And
// what one costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/bounds.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kThreads = 8;

/// `count` scalars.
class Scalars {
 public:
  explicit Scalars(std::size_t count) : values_(count) {
    for (std::size_t i = 0; i < count; ++i)
      list_.push_back({"s" + std::to_string(i), DataType::f32, {}, &values_[i], nullptr});
  }
  const std::vector<Parameter>& list() const { return list_; }

 private:
  std::vector<float> values_;
  std::vector<Parameter> list_;
};

float value_of(int rank, std::size_t step, std::size_t i) {
  return static_cast<float>((i * 3 + step + static_cast<std::size_t>(rank)) % 64);
}

TEST(Marks, AMillionOfThemFromEightThreadsLoseNothing) {
  constexpr int kRanks = 2;
  constexpr std::size_t kScalars = 4000, kSteps = 125;
  static_assert(kRanks * kScalars * kSteps == 1'000'000);
  testing::on_ranks(kRanks, "auto", [](Communicator& communicator) {
    const Scalars scalars(kScalars);
    Reducer reducer(communicator, scalars.list(),
                    {.bucket_bytes = 4'096, .first_bucket_bytes = 1'024, .check_first = false});
    const int rank = communicator.rank();
    std::vector<std::size_t> order(kScalars);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 random(static_cast<unsigned>(rank));

    std::barrier meeting(kThreads + 1);  // Before and after each backward.
    const auto mark_share = [&](std::size_t thread) {
      for (std::size_t step = 0; step < kSteps; ++step) {
        meeting.arrive_and_wait();
        for (std::size_t k = thread; k < kScalars; k += kThreads) {
          *static_cast<float*>(reducer.gradient(order[k])) = value_of(rank, step, order[k]);
          reducer.mark_ready(order[k]);
        }
        meeting.arrive_and_wait();
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) threads.emplace_back(mark_share, t);
    for (std::size_t step = 0; step < kSteps; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      meeting.arrive_and_wait();
      meeting.arrive_and_wait();
      reducer.wait();
      for (std::size_t i = 0; i < kScalars; ++i) {
        const float expected = (value_of(0, step, i) + value_of(1, step, i)) / 2;
        EXPECT_EQ(*static_cast<float*>(reducer.gradient(i)), expected) << "step " << step << ", scalar " << i;
      }
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(reducer.statistics().step, std::uint64_t{kSteps});
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // These cost several times as much.
/// Of a mark that does not complete a bucket; the collective that the last one starts is work of its own.
TEST(Marks, CostLessThanTwoHundredNanoseconds) {
  using Clock = std::chrono::steady_clock;
  testing::on_ranks(1, "auto", [](Communicator& communicator) {
    constexpr std::size_t kScalars = 20'000;
    const Scalars scalars(kScalars);
    Reducer reducer(communicator, scalars.list());
    std::vector<std::size_t> order(kScalars);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    auto best = Clock::duration::max();
    for (int step = 0; step < 20; ++step) {
      const auto start = Clock::now();
      for (const std::size_t i : order) reducer.mark_ready(i);
      best = std::min(best, Clock::now() - start);
      reducer.wait();
    }
    const auto each = std::chrono::duration_cast<std::chrono::nanoseconds>(best) / kScalars;
    std::cout << "mark_ready: " << each.count() << " ns\n";
    EXPECT_LT(each, testing::allowed(std::chrono::nanoseconds(200)));
  });
}
#endif

}  // namespace
}  // namespace lockstep
