// ReducerOptions::overlap_forward: what the next forward needs first comes first, wait() leaves the rest on
// its way, and who reads a gradient too early, or never waits for it, is told.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ddp/bucket_plan.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/engine/sim_world.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;

/// What `call` throws, which must have this code.
std::string thrown_by(const std::function<void()>& call, ErrorCode code) {
  const Error error = testing::thrown_by(call);
  EXPECT_EQ(error.code(), code) << error.what();
  return error.what();
}

ReducerOptions overlapping() {
  ReducerOptions options{.bucket_bytes = 8'000, .first_bucket_bytes = 2'000};
  options.overlap_forward = true;
  return options;
}

void backward(Reducer& reducer, const Model& model, int rank, std::size_t step) {
  for (std::size_t i = model.tensors(); i-- > 0;) {
    write_gradient(reducer, model, i, rank, step);
    reducer.mark_ready(i);
  }
}

void expect_average(Reducer& reducer, const Model& model, int ranks, std::size_t step, std::size_t i) {
  const auto* gradient = static_cast<const float*>(reducer.gradient(i));
  for (std::size_t e = 0; e < model.elements(i); ++e) {
    const float average = summed_gradient(ranks, step, i, e) / static_cast<float>(ranks);
    ASSERT_FLOAT_EQ(gradient[e], average) << "step " << step << ", tensor " << i;
  }
}

TEST(FirstUrgent, LeavesOutTheFirstQuarterOfTheBytes) {
  BucketPlan plan;
  EXPECT_EQ(internal::first_urgent(plan), 0u);
  const auto add = [&](std::size_t elements) {
    plan.buckets.push_back({DataType::f32, {{plan.buckets.size(), 0, 0, elements}}, elements});
  };
  add(10);
  EXPECT_EQ(internal::first_urgent(plan), 0u);
  for (int i = 0; i < 7; ++i) add(10);
  EXPECT_EQ(internal::first_urgent(plan), 2u);
  add(1'000);
  EXPECT_EQ(internal::first_urgent(plan), 8u);  // The last in any case.
}

/// A step's collectives on a simulated network: all buckets, started in plan order, then the closing
/// exchange.
TEST(OverlapForward, OverLinksTheVerdictOvertakesTheFirstBuckets) {
  Model model(60, 7);
  const BucketPlan plan = plan_buckets(model.list(), overlapping());
  const std::size_t first = internal::first_urgent(plan);
  ASSERT_GT(first, 0u);
  internal::SimWorldOptions options;
  options.world = 3;
  options.network.links.in_flight = 4'000;
  options.concurrency = static_cast<int>(plan.buckets.size() + 1);
  internal::SimWorld world(options);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    internal::SimCall call;
    call.what.world = options.world;
    call.what.count = plan.buckets[b].count;
    call.priority = b >= first ? 1 : 0;
    world.add(call);
  }
  internal::SimCall closing;
  closing.what.collective = Collective::all_gather;
  closing.what.world = options.world;
  closing.what.count = 3;
  closing.priority = 1;
  world.add(closing);
  ASSERT_EQ(world.run_and_check(), "");
  for (int rank = 0; rank < options.world; ++rank) {
    const auto& outcomes = world.outcomes(rank);
    for (std::size_t b = 0; b < plan.buckets.size(); ++b)
      EXPECT_EQ(outcomes.back().ended < outcomes[b].ended, b < first) << "rank " << rank << ", bucket " << b;
  }
}

class OverlappedForward : public ::testing::TestWithParam<const char*> {};

TEST_P(OverlappedForward, GradientsAreThereOnceTheyAreWaitedFor) {
  on_ranks(3, GetParam(), [](Communicator& communicator) {
    Model model(30, 5);
    Reducer reducer(communicator, model.list(), overlapping());
    for (std::size_t step = 0; step < 10; ++step) {
      backward(reducer, model, communicator.rank(), step);
      reducer.wait();
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        reducer.wait_gradients(i);
        expect_average(reducer, model, communicator.size(), step, i);
      }
      EXPECT_EQ(reducer.statistics().step, step + 1);
      EXPECT_LE(reducer.statistics().exposed, reducer.statistics().waited);
    }
  });
}

/// What the caller keeps is filled when it is waited for: by calls that wait for all too.
TEST_P(OverlappedForward, GradientsOfTheCallersOwnComeWithEveryCallThatWaits) {
  const std::function<void(Reducer&)> calls[] = {
      [](Reducer& reducer) { reducer.wait_gradients(); },
      [](Reducer& reducer) { const auto pause = reducer.no_sync(); },
      [](Reducer& reducer) { reducer.clip_gradients(1e9); },
      [](Reducer& reducer) { EXPECT_TRUE(reducer.begin_step(1)); },
      [](Reducer& reducer) { reducer.freeze({}); },
      [](Reducer& reducer) { reducer.add_parameters({}); },
      [](Reducer& reducer) { reducer.restored(7); },
  };
  for (const auto& call : calls) {
    on_ranks(2, GetParam(), [&](Communicator& communicator) {
      Model model(20, 5);
      ReducerOptions options = overlapping();
      options.gradients_as_views = options.rebuild = false;
      Reducer reducer(communicator, model.list(options), options);
      const auto step = [&](std::size_t number, const std::function<void(Reducer&)>& wait_for_all) {
        backward(reducer, model, communicator.rank(), number);
        reducer.wait();
        wait_for_all(reducer);
        for (std::size_t i = 0; i < model.tensors(); ++i)
          expect_average(reducer, model, communicator.size(), number, i);
      };
      step(0, call);
      step(1, calls[0]);
    });
  }
}

/// Of a step after which the buckets are laid out anew none is left on its way.
TEST_P(OverlappedForward, TheBucketsFollowTheOrderOfTheGradients) {
  on_ranks(2, GetParam(), [](Communicator& communicator) {
    Model model(20, 5);
    ReducerOptions options = overlapping();
    options.gradients_as_views = false;
    Reducer reducer(communicator, model.list(options), options);
    const BucketPlan before = reducer.plan();
    for (std::size_t step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        write_gradient(reducer, model, i, communicator.rank(), step);
        reducer.mark_ready(i);
      }
      reducer.wait();
      EXPECT_NE(reducer.plan(), before);
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        reducer.wait_gradients(i);
        expect_average(reducer, model, communicator.size(), step, i);
      }
    }
  });
}

TEST_P(OverlappedForward, AGradientNeverWaitedForIsNamedAtTheNextMark) {
  on_ranks(2, GetParam(), [](Communicator& communicator) {
    Model model(10, 5);
    Reducer reducer(communicator, model.list(), overlapping());
    backward(reducer, model, communicator.rank(), 0);
    reducer.wait();
    const std::string text = thrown_by([&] { reducer.mark_ready(9); }, ErrorCode::invalid_argument);
    EXPECT_NE(text.find("wait_gradients()"), std::string::npos) << text;
    reducer.wait_gradients();
    backward(reducer, model, communicator.rank(), 1);  // The mark above had no effect.
    reducer.wait();
    reducer.wait_gradients();
    for (std::size_t i = 0; i < model.tensors(); ++i)
      expect_average(reducer, model, communicator.size(), 1, i);
  });
}

TEST_P(OverlappedForward, AStepThatIsBadAnywhereLeavesGradientsAsTheyWere) {
  on_ranks(2, GetParam(), [](Communicator& communicator) {
    Model model(20, 5);
    Reducer reducer(communicator, model.list(), overlapping());
    const int rank = communicator.rank();
    for (std::size_t i = model.tensors(); i-- > 0;) {
      write_gradient(reducer, model, i, rank, 0);
      if (rank == 0 || i != 3) reducer.mark_ready(i);
    }
    const std::string text = thrown_by([&] { reducer.wait(); }, ErrorCode::invalid_argument);
    EXPECT_NE(text.find("tensor3"), std::string::npos) << text;
    for (std::size_t i = 0; i < model.tensors(); ++i) {
      const auto* gradient = static_cast<const float*>(reducer.gradient(i));
      for (std::size_t e = 0; e < model.elements(i); ++e)
        ASSERT_EQ(gradient[e], local_gradient(rank, 0, i, e)) << "tensor " << i;
    }
    backward(reducer, model, rank, 1);
    reducer.wait();
    reducer.wait_gradients();
    for (std::size_t i = 0; i < model.tensors(); ++i)
      expect_average(reducer, model, communicator.size(), 1, i);
  });
}

TEST_P(OverlappedForward, AReducerMayEndWhileItsBucketsAreOnTheirWay) {
  on_ranks(2, GetParam(), [](Communicator& communicator) {
    Model model(20, 5);
    {
      Reducer reducer(communicator, model.list(), overlapping());
      backward(reducer, model, communicator.rank(), 0);
      reducer.wait();
    }
    communicator.barrier();
  });
}

TEST_P(OverlappedForward, WhatIsOnItsWayBelongsToTheRunBeforeACheckpoint) {
  on_ranks(2, GetParam(), [](Communicator& communicator) {
    Model model(20, 5);
    Reducer reducer(communicator, model.list(), overlapping());
    backward(reducer, model, communicator.rank(), 0);
    reducer.wait();
    reducer.restored(7);
    EXPECT_EQ(reducer.statistics().step, 1u);
    backward(reducer, model, communicator.rank(), 1);
    reducer.wait();
    reducer.wait_gradients();
    EXPECT_EQ(reducer.statistics().step, 8u);
  });
}

TEST_P(OverlappedForward, StepsOfFrozenParametersAreCountedAsTheyEnd) {
  on_ranks(2, GetParam(), [](Communicator& communicator) {
    Model model(3, 5);
    Reducer reducer(communicator, model.list(), overlapping());
    const std::size_t all[] = {0, 1, 2};
    reducer.freeze(all);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      reducer.wait();
      EXPECT_EQ(reducer.statistics().step, step);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Over, OverlappedForward, ::testing::Values("tcp", "shm"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(OverlapForward, WhatCannotGoTogetherIsRefused) {
  on_ranks(2, "shm", [](Communicator& communicator) {
    Model model(3, 5);
    ReducerOptions options = overlapping();
    options.hook = make_half_hook();
    const std::string hook =
        thrown_by([&] { Reducer(communicator, model.list(), options); }, ErrorCode::invalid_argument);
    EXPECT_NE(hook.find("hook"), std::string::npos) << hook;
    options = overlapping();
    options.half_in_f32 = true;
    const std::string half =
        thrown_by([&] { Reducer(communicator, model.list(), options); }, ErrorCode::invalid_argument);
    EXPECT_NE(half.find("half_in_f32"), std::string::npos) << half;
    options = overlapping();
    options.overlap_forward = communicator.rank() == 0;
    const std::string differs =
        thrown_by([&] { Reducer(communicator, model.list(), options); }, ErrorCode::mismatch);
    EXPECT_NE(differs.find("overlap_forward"), std::string::npos) << differs;
  });
}

}  // namespace
}  // namespace lockstep
