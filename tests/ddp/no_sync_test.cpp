// Gradients that were used under no_sync, and what becomes of them in the step that follows.
#include <gtest/gtest.h>

#include <optional>
#include <tuple>
#include <utility>

#include "tests/ddp/numbers.hpp"
#include "tests/ddp/sharded/arrangements.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

TEST(NoSync, BeginsBetweenStepsOnly) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 2);
    numbers.mark(0);
    EXPECT_NE(std::string(thrown_by([&] { auto pause = numbers.reducer().no_sync(); }).what())
                  .find("in the midst of step 1"),
              std::string::npos);
    numbers.mark(1);
    numbers.reducer().wait();
  });
}

TEST(NoSync, OutlivesAReducerThatIsMovedMeanwhile) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    std::vector<float> values(4);
    const std::vector<Parameter> list{{"w", DataType::f32, {4}, values.data(), nullptr}};
    Reducer first(communicator, list);
    std::optional<Reducer> second;
    {
      const auto pause = first.no_sync();
      second.emplace(std::move(first));
      second->mark_ready(0);
      second->wait();
      EXPECT_EQ(second->steps(), 0u);
    }
    second->mark_ready(0);
    second->wait();
    EXPECT_EQ(second->steps(), 1u);
  });
}

/// The buckets still hold the step before: none of it may be added up again.
TEST(NoSync, CountsForNothingWhereTheRankThenHasNoData) {
  for (const bool views : {false, true}) {
    for (const bool check_first : {false, true}) {
      on_ranks(2, "auto", [&](Communicator& communicator) {
        ReducerOptions options{.bucket_bytes = 4, .first_bucket_bytes = 4};
        options.gradients_as_views = views;
        options.check_first = check_first;
        Numbers numbers(communicator, 3, options);
        Reducer& reducer = numbers.reducer();
        for (int step = 0; step < 3; ++step) {
          const bool has_data = step != 1 || communicator.rank() == 0;
          const auto local = [&] {
            const auto pause = reducer.no_sync();
            for (std::size_t i = 0; i < 3; ++i) numbers.mark(i);
          };
          local();
          ASSERT_TRUE(reducer.begin_step(has_data ? 1 : 0));
          if (check_first) local();  // Without it the buckets of a rank without data are on their way.
          for (std::size_t i = 0; has_data && i < 3; ++i) numbers.mark(i);
          reducer.wait();
          for (std::size_t i = 0; i < 3; ++i) numbers.expect(i, step == 1 ? 0.5 : 1.5);
        }
      });
    }
  }
}

/// Stage 2: a bucket is lent memory that another one has used.
TEST(NoSync, CountsForNothingInShardsWhereTheRankThenHasNoData) {
  for (const auto& arrangement : testing::kArrangements) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(20, 5);
      ShardedOptimizer sharded(communicator, model.list(arrangement.stage),
                               std::make_shared<SgdMomentum>(1.0, 0.0), testing::small_buckets(arrangement));
      const int rank = communicator.rank();
      const auto backward = [&] {
        for (std::size_t i = model.tensors(); i-- > 0;) {
          auto* gradient = testing::floats(sharded.gradient(i));
          for (std::size_t e = 0; e < model.elements(i); ++e) gradient[e] = local_gradient(rank, 0, i, e);
          sharded.mark_ready(i);
        }
      };
      for (int step = 0; step < 2; ++step) {
        const bool has_data = step == 0 || rank == 0;
        {
          const auto pause = sharded.no_sync();
          backward();
        }
        ASSERT_TRUE(sharded.begin_step(has_data ? 1 : 0));
        if (has_data) backward();
        sharded.wait();
        sharded.step();
        sharded.wait_parameters();
      }
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        for (std::size_t e = 0; e < model.elements(i); ++e) {
          const float sum = summed_gradient(2, 0, i, e) + local_gradient(0, 0, i, e);
          ASSERT_FLOAT_EQ(testing::floats(sharded.value(i))[e], -sum / 2) << "tensor " << i;
        }
      }
    });
  }
}

/// Backward of the last micro-batch never reaches parameter 1, in any step.
TEST(NoSync, IsEnoughForAGradientOfAStaticGraph) {
  for (const bool views : {false, true}) {
    for (const bool find_unused : {false, true}) {
      on_ranks(2, "auto", [&](Communicator& communicator) {
        ReducerOptions options{.bucket_bytes = 64, .first_bucket_bytes = 64};
        options.gradients_as_views = views;
        options.find_unused = find_unused;
        options.static_graph = true;
        options.check_finite = true;
        Numbers numbers(communicator, 3, options);
        const auto mine = [&](int step) { return static_cast<float>((communicator.rank() + 1) * step); };
        for (int step = 1; step <= 4; ++step) {
          {
            const auto pause = numbers.reducer().no_sync();
            numbers.gradient(1) = mine(step);
            numbers.reducer().mark_ready(1);
          }
          numbers.mark(2);
          numbers.mark(0);
          numbers.reducer().wait();
          numbers.expect(2, 1.5);
          numbers.expect(0, 1.5);
          EXPECT_EQ(numbers.gradient(1), 1.5f * static_cast<float>(step)) << "step " << step;
        }
        {
          const auto pause = numbers.reducer().no_sync();
          numbers.gradient(1) = communicator.rank() == 0 ? std::nanf("") : 1.0f;
          numbers.reducer().mark_ready(1);
        }
        numbers.mark(2);
        numbers.mark(0);
        EXPECT_NE(std::string(thrown_by([&] { numbers.reducer().wait(); }).what()).find("\"n1\" (1)"),
                  std::string::npos);
      });
    }
  }
}

/// That a micro-batch does not reach a gradient says nothing of the others.
TEST(NoSync, WhatIsMarkedAsUnusedMeanwhileIsAwaitedAllTheSame) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.find_unused = true;
    Numbers numbers(communicator, 2, options);
    {
      const auto pause = numbers.reducer().no_sync();
      numbers.reducer().mark_unused(0);
      numbers.mark(1);
    }
    for (std::size_t i = 0; i < 2; ++i) numbers.mark(i);
    numbers.reducer().wait();
    for (std::size_t i = 0; i < 2; ++i) numbers.expect(i, 1.5);
  });
}

TEST(NoSync, CountsForNothingAfterARestore) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.find_unused = true;
    Numbers numbers(communicator, 2, options);
    {
      const auto pause = numbers.reducer().no_sync();
      numbers.mark(0);
    }
    numbers.reducer().restored(5);
    numbers.mark(1);
    numbers.reducer().wait();
    numbers.expect(0, 0);
    numbers.expect(1, 1.5);
    EXPECT_FALSE(numbers.reducer().used(0));
  });
}

/// A step that failed is repeated by the marks of its last micro-batch.
TEST(NoSync, IsRememberedWhenTheStepIsRepeated) {
  for (const auto& [views, check_first, static_graph] :
       {std::tuple(true, false, false), std::tuple(true, true, false), std::tuple(false, false, false),
        std::tuple(true, false, true), std::tuple(true, true, true)}) {
    on_ranks(2, "auto",
             [&, views = views, check_first = check_first,
              static_graph = static_graph](Communicator& communicator) {
               ReducerOptions options{.bucket_bytes = 4, .first_bucket_bytes = 4};
               options.gradients_as_views = views;
               options.check_first = check_first;
               options.static_graph = static_graph;
               options.find_unused = !static_graph;
               options.check_finite = true;
               Numbers numbers(communicator, 2, options);
               Reducer& reducer = numbers.reducer();
               for (int step = 0; step < 3; ++step) {
                 {
                   const auto pause = reducer.no_sync();
                   for (std::size_t i = 0; i < 2; ++i) numbers.mark(i);
                 }
                 for (int failures = 0; step > 0 && failures < 2; ++failures) {
                   numbers.gradient(0) = communicator.rank() == 1 ? std::nanf("") : 1.0f;
                   reducer.mark_ready(0);
                   thrown_by([&] { reducer.wait(); });
                   EXPECT_EQ(numbers.gradient(1), numbers.mine(1));
                 }
                 numbers.mark(0);
                 reducer.wait();
                 for (std::size_t i = 0; i < 2; ++i) numbers.expect(i, 1.5);
                 EXPECT_TRUE(reducer.used(1));
               }
               if (static_graph) return;
               numbers.mark(0);  // What was sent is not sent again.
               reducer.wait();
               EXPECT_FALSE(reducer.used(1));
             });
  }
}

}  // namespace
}  // namespace lockstep
