// Reducer on groups of threads: values, orders of marking, threads, construction and statistics.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "lockstep/ddp.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;

/// Buckets travel during backward, whatever the machine.
const ReducerOptions kSmallBuckets{.bucket_bytes = 8'000, .first_bucket_bytes = 2'000, .check_first = false};

std::vector<std::size_t> shuffled(std::size_t n, unsigned seed) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

void expect_reduced(Reducer& reducer, const Model& model, int ranks, std::size_t step, bool average) {
  const float divisor = average ? static_cast<float>(ranks) : 1.0f;
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    const auto* gradient = static_cast<const float*>(reducer.gradient(i));
    for (std::size_t e = 0; e < model.elements(i); ++e) {
      ASSERT_NEAR(gradient[e], summed_gradient(ranks, step, i, e) / divisor, 1e-4)
          << "tensor " << i << ", element " << e;
    }
  }
}

/// Steps in which every rank marks in an order of its own.
void run_steps(Communicator& communicator, const ReducerOptions& options) {
  Model model(20, 5);
  Reducer reducer(communicator, model.list(options), options);
  const int rank = communicator.rank();
  for (std::size_t step = 0; step < 5; ++step) {
    for (const std::size_t i :
         shuffled(model.tensors(), static_cast<unsigned>(step) * 64 + static_cast<unsigned>(rank))) {
      write_gradient(reducer, model, i, rank, step);
      reducer.mark_ready(i);
    }
    reducer.wait();
    expect_reduced(reducer, model, communicator.size(), step, options.average);
  }
}

TEST(Reducer, AveragesWhateverTheOrderOfMarking) {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int n : {1, 2, 3, 4, 5}) {
      on_ranks(n, transports, [](Communicator& communicator) { run_steps(communicator, kSmallBuckets); });
    }
  }
}

TEST(Reducer, SumsInsteadOfAveraging) {
  ReducerOptions options = kSmallBuckets;
  options.average = false;
  on_ranks(3, "auto", [&](Communicator& communicator) { run_steps(communicator, options); });
}

TEST(Reducer, CopiesInAndOutWithoutViewsAndMixesWithViews) {
  on_ranks(4, "auto", [](Communicator& communicator) {
    ReducerOptions options = kSmallBuckets;
    options.gradients_as_views = communicator.rank() % 2 == 0;
    run_steps(communicator, options);
  });
}

TEST(Reducer, ReducesInOneBucketWithTheDefaultCaps) {
  on_ranks(2, "auto", [](Communicator& communicator) { run_steps(communicator, {}); });
}

TEST(Reducer, ReducesDifferentTypesTogether) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    std::vector<float> singles(7);
    std::vector<double> doubles(5);
    const std::vector<Parameter> list{{"singles", DataType::f32, {7}, singles.data(), nullptr},
                                      {"doubles", DataType::f64, {5}, doubles.data(), nullptr}};
    Reducer reducer(communicator, list);
    EXPECT_EQ(reducer.plan().buckets.size(), 2u);
    std::fill_n(static_cast<float*>(reducer.gradient(0)), 7, static_cast<float>(communicator.rank()));
    std::fill_n(static_cast<double*>(reducer.gradient(1)), 5, 3.0 * communicator.rank());
    reducer.mark_ready(0);
    reducer.mark_ready(1);
    reducer.wait();
    EXPECT_FLOAT_EQ(static_cast<float*>(reducer.gradient(0))[6], 1.0f);
    EXPECT_DOUBLE_EQ(static_cast<double*>(reducer.gradient(1))[4], 3.0);
  });
}

TEST(Reducer, TakesMarksFromEightThreads) {
  constexpr std::size_t kThreads = 8;
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(64, 9);
    Reducer reducer(communicator, model.list(), kSmallBuckets);
    const int rank = communicator.rank();
    for (std::size_t step = 0; step < 8; ++step) {
      const auto order =
          shuffled(model.tensors(), static_cast<unsigned>(step) * 64 + static_cast<unsigned>(rank));
      std::vector<std::thread> threads;
      for (std::size_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          for (std::size_t k = t; k < order.size(); k += kThreads) {
            write_gradient(reducer, model, order[k], rank, step);
            reducer.mark_ready(order[k]);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      reducer.wait();
      expect_reduced(reducer, model, communicator.size(), step, true);
    }
  });
}

TEST(Reducer, StartsFromRankZerosValuesAndZeroGradients) {
  for (const bool views : {true, false}) {
    on_ranks(4, "auto", [&](Communicator& communicator) {
      Model model(10, 2);
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        std::fill(model.values(i).begin(), model.values(i).end(),
                  static_cast<float>(10 * communicator.rank() + 1) + static_cast<float>(i));
      }
      ReducerOptions options = kSmallBuckets;
      options.gradients_as_views = views;
      Reducer reducer(communicator, model.list(options), options);
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        for (const float value : model.values(i)) EXPECT_EQ(value, 1.0f + static_cast<float>(i));
        const auto* gradient = static_cast<const float*>(reducer.gradient(i));
        for (std::size_t e = 0; e < model.elements(i); ++e) EXPECT_EQ(gradient[e], 0.0f);
      }
    });
  }
}

TEST(Reducer, AlignsViews) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(12, 4);
    Reducer reducer(communicator, model.list(), kSmallBuckets);
    for (std::size_t i = 0; i < model.tensors(); ++i) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(reducer.gradient(i)) % BucketPlan::kAlignment, 0u);
    }
  });
}

TEST(Reducer, WorksAfterItWasMoved) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(5, 1);
    Reducer first(communicator, model.list());
    first.mark_ready(0);
    Reducer second(std::move(first));
    for (std::size_t i = 1; i < model.tensors(); ++i) second.mark_ready(i);
    second.wait();
    EXPECT_EQ(second.statistics().step, 1u);
  });
}

TEST(Reducer, CountsStepsBytesAndBuckets) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(20, 5);
    Reducer reducer(communicator, model.list(), kSmallBuckets);
    EXPECT_EQ(reducer.statistics().step, 0u);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < model.tensors(); ++i) bytes += model.elements(i) * sizeof(float);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      for (std::size_t i = 0; i < model.tensors(); ++i) reducer.mark_ready(i);
      reducer.wait();
      const StepStatistics statistics = reducer.statistics();
      EXPECT_EQ(statistics.step, step);
      EXPECT_EQ(statistics.bytes, bytes);
      EXPECT_EQ(static_cast<std::size_t>(statistics.buckets), reducer.plan().buckets.size());
      EXPECT_GT(statistics.waited.count(), 0);
      EXPECT_GE(statistics.first_ready_to_done, statistics.waited)
          << "the first bucket started before wait()";
    }
  });
}

}  // namespace
}  // namespace lockstep
