// The reducer's modes: what each promises on its own.
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/ddp.hpp"
#include "tests/ddp/numbers.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

TEST(StaticGraph, CountsMarksInTheFirstStepAndOverlapsLater) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options{.bucket_bytes = 4, .first_bucket_bytes = 4};
    options.static_graph = true;
    Numbers numbers(communicator, 3, options);
    Reducer& reducer = numbers.reducer();
    for (int step = 1; step <= 4; ++step) {
      numbers.mark(2);
      // Parameter 1 is used twice in the graph; parameter 0 on rank 1 only.
      reducer.mark_ready(1);
      numbers.mark(1);
      if (communicator.rank() == 1) numbers.mark(0);
      reducer.wait();
      numbers.expect(2, 1.5);
      numbers.expect(1, 1.5);
      numbers.expect(0, 1.0);
      EXPECT_EQ(reducer.statistics().step, static_cast<std::uint64_t>(step));
    }
  });
}

TEST(StaticGraph, NamesAGraphThatChanges) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.static_graph = true;
    Numbers numbers(communicator, 3, options);
    Reducer& reducer = numbers.reducer();
    for (const std::size_t i : {1u, 2u}) numbers.mark(i);
    reducer.wait();
    for (const std::size_t i : {1u, 2u}) numbers.mark(i);
    if (communicator.rank() == 0) {
      EXPECT_NE(std::string(thrown_by([&] { numbers.mark(0); }).what()).find("not marked in the first step"),
                std::string::npos);
    }
    const Error error = thrown_by([&] { reducer.wait(); });
    EXPECT_EQ(error.culprit(), 0);
    EXPECT_NE(std::string(error.what()).find("rank 0 marked \"n0\" (0), which it did not in the first step"),
              std::string::npos)
        << error.what();
    numbers.mark(1);  // Another kind of change: a mark that does not come.
    if (communicator.rank() == 0) numbers.mark(2);
    EXPECT_EQ(thrown_by([&] { reducer.wait(); }).culprit(), 1);
  });
}

TEST(StaticGraph, SaysThatMarksAreAsManyAsInTheFirstStep) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.static_graph = true;
    Numbers numbers(communicator, 1, options);
    Reducer& reducer = numbers.reducer();
    const auto advice = [&](int marks) {
      return std::string(thrown_by([&] {
                           for (int k = 0; k < marks; ++k) reducer.mark_ready(0);
                           reducer.wait();
                         }).what());
    };
    for (int k = 0; k < 2; ++k) reducer.mark_ready(0);
    reducer.wait();
    EXPECT_NE(advice(1).find("with static_graph mark each as often as in the first step"), std::string::npos);
    EXPECT_NE(advice(3).find("counts the marks of the first step, and others have as many"),
              std::string::npos);
    EXPECT_THROW(reducer.wait(), Error) << "the surplus mark fails the step on all ranks";
  });
}

TEST(UnevenInputs, StopTogetherWhenAskedTo) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.uneven = UnevenInputs::stop;
    Numbers numbers(communicator, 2, options);
    int steps = 0;
    int batches = 3 + communicator.rank();
    while (numbers.reducer().begin_step(static_cast<std::uint64_t>(batches-- > 0))) {
      numbers.mark(0);
      numbers.mark(1);
      numbers.reducer().wait();
      ++steps;
    }
    EXPECT_EQ(steps, 3);
  });
}

TEST(UnevenInputs, RefuseMarksOfARankWithoutData) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 1);
    ASSERT_TRUE(numbers.reducer().begin_step(communicator.rank() == 0 ? 1 : 0));
    if (communicator.rank() == 0) {
      numbers.mark(0);
    } else {
      EXPECT_NE(std::string(thrown_by([&] { numbers.reducer().mark_ready(0); }).what()).find("no data"),
                std::string::npos);
    }
    numbers.reducer().wait();
    numbers.expect(0, 0.5);
    EXPECT_NE(std::string(thrown_by([&] {
                            numbers.reducer().mark_ready(0);
                            static_cast<void>(numbers.reducer().begin_step(1));
                          }).what())
                  .find("in the midst of step 2"),
              std::string::npos);
    numbers.reducer().wait();
  });
}

TEST(Weighted, CountsSamples) {
  for (const bool hook : {false, true}) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      ReducerOptions options;
      options.weighted = true;
      if (hook) {
        options.hook = make_hook("all_reduce", [](Communicator& c, const GradientBucket& b) {
          return HookResult{c.all_reduce_async(b.data, b.data, b.count, b.type, b.op())};
        });
      }
      Numbers numbers(communicator, 2, options);
      const auto rank = static_cast<std::size_t>(communicator.rank());
      const auto step = [&](std::vector<std::uint64_t> samples, double average) {
        ASSERT_TRUE(numbers.reducer().begin_step(samples[rank]));
        if (samples[rank] > 0) {
          numbers.mark(1);
          numbers.mark(0);
        }
        numbers.reducer().wait();
        numbers.expect(0, average);
        numbers.expect(1, average);
      };
      step({8, 8, 8}, 2);
      step({8, 4, 4}, (8 * 1 + 4 * 2 + 4 * 3) / 16.0);
      step({0, 1, 1}, 2.5);
      step({0, 0, 7}, 3);
    });
  }
}

TEST(Weighted, NeedsToKnowTheSamples) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.weighted = true;
    Numbers numbers(communicator, 1, options);
    EXPECT_NE(std::string(thrown_by([&] { numbers.mark(0); }).what()).find("begin_step(samples)"),
              std::string::npos);
    options.average = false;
    EXPECT_NE(std::string(thrown_by([&] { Numbers sums(communicator, 1, options); }).what())
                  .find("weighted gradients are averaged"),
              std::string::npos);
  });
}

/// What is not averaged must not be weighted either.
TEST(Weighted, IsNoCompanionOfAHookThatLeavesGradientsLocal) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.weighted = true;
    options.hook = std::make_shared<LocalSgd>(LocalSgdOptions{});
    const Error error = thrown_by([&] { Numbers numbers(communicator, 1, options); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("leaves gradients"), std::string::npos) << error.what();
  });
}

/// The step that counts marks included.
TEST(StaticGraph, WhatIsMarkedAsUnusedIsZeroInEveryStep) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.static_graph = options.find_unused = true;
    Numbers numbers(communicator, 2, options);
    Reducer& reducer = numbers.reducer();
    for (int step = 1; step <= 3; ++step) {
      numbers.gradient(0) = 7;
      reducer.mark_unused(0);
      numbers.mark(1);
      reducer.wait();
      EXPECT_EQ(numbers.gradient(0), 0) << step;
      EXPECT_FALSE(reducer.used(0)) << step;
      numbers.expect(1, 1.5);
    }
  });
}

/// Without find_unused too.
TEST(StaticGraph, AParameterThatNoRankMarksIsUnused) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.static_graph = true;
    Numbers numbers(communicator, 2, options);
    for (int step = 1; step <= 2; ++step) {
      numbers.gradient(0) = 7;
      numbers.mark(1);
      numbers.reducer().wait();
      numbers.expect(0, 0);
      numbers.expect(1, 1.5);
      EXPECT_FALSE(numbers.reducer().used(0)) << step;
      EXPECT_TRUE(numbers.reducer().used(1)) << step;
    }
  });
}

/// Of two branches of the graph that reach a parameter, one may bring nothing.
TEST(StaticGraph, AGradientThatOneMarkBringsIsThereWhateverTheLastOneSays) {
  for (const bool views : {true, false}) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      ReducerOptions options;
      options.gradients_as_views = views;
      options.static_graph = options.find_unused = true;
      Numbers numbers(communicator, 1, options);
      for (int step = 1; step <= 3; ++step) {
        numbers.mark(0);
        numbers.reducer().mark_unused(0);
        numbers.reducer().wait();
        numbers.expect(0, 1.5);
        EXPECT_TRUE(numbers.reducer().used(0)) << step;
      }
    });
  }
}

TEST(Clipping, IsRefusedInTheMidstOfAStep) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 2);
    numbers.mark(1);
    EXPECT_STREQ(thrown_by([&] { numbers.reducer().clip_gradients(1); }).what(),
                 "clip_gradients was called in the midst of step 1; call wait() first");
    numbers.mark(0);
    numbers.reducer().wait();
    EXPECT_GT(numbers.reducer().clip_gradients(1), 1);
  });
}

TEST(Freeze, LeavesParametersOutUntilTheyAreNamedNoMore) {
  for (const bool views : {true, false}) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      ReducerOptions options{.bucket_bytes = 160, .first_bucket_bytes = 160};
      options.gradients_as_views = views;
      Numbers numbers(communicator, 7, options);
      Reducer& reducer = numbers.reducer();
      const auto step = [&](const std::vector<std::size_t>& frozen) {
        reducer.freeze(frozen);
        for (const std::size_t i : frozen) {
          if (views) numbers.expect(i, 0);
        }
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < 7; ++i) {
          if (std::find(frozen.begin(), frozen.end(), i) != frozen.end()) continue;
          numbers.mark(i);
          bytes += sizeof(float);
        }
        reducer.wait();
        EXPECT_EQ(reducer.statistics().bytes, bytes);
        for (std::size_t i = 0; i < 7; ++i) {
          const bool is_frozen = std::find(frozen.begin(), frozen.end(), i) != frozen.end();
          EXPECT_EQ(reducer.used(i), !is_frozen);
          if (!is_frozen) numbers.expect(i, 1.5);
        }
      };
      step({});
      const auto* gradient = reducer.gradient(5);
      step({6, 5, 0});
      step({1, 3});
      step({0, 1, 2, 3, 4, 5, 6});
      step({});
      EXPECT_EQ(reducer.gradient(5), gradient) << "nothing moves";
    });
  }
}

/// Its view lies between those of others, in their bucket.
TEST(Freeze, WhatIsWrittenToAFrozenGradientCountsForNothing) {
  for (const bool hook : {false, true}) {
    for (const float written : {1e6f, std::nanf("")}) {
      on_ranks(2, "auto", [&](Communicator& communicator) {
        ReducerOptions options;
        if (hook) options.hook = make_quantised_hook();
        Numbers numbers(communicator, 3, options);
        Reducer& reducer = numbers.reducer();
        reducer.freeze(std::vector<std::size_t>{1});
        for (int step = 0; step < 2; ++step) {
          numbers.gradient(0) = numbers.gradient(2) = 1;
          numbers.gradient(1) = written;
          for (const std::size_t i : {2u, 1u, 0u}) reducer.mark_ready(i);
          reducer.wait();
          for (const std::size_t i : {0u, 2u}) EXPECT_NEAR(numbers.gradient(i), 1, 1e-6) << written;
          EXPECT_EQ(numbers.gradient(1), 0);
        }
      });
    }
  }
}

TEST(Freeze, NamesTheRankWithAnotherList) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 4);
    const std::vector<std::size_t> list{communicator.rank() == 2 ? 3u : 1u};
    const Error error = thrown_by([&] { numbers.reducer().freeze(list); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(error.culprit(), 2);
    for (std::size_t i = 0; i < 4; ++i) numbers.mark(i);
    numbers.reducer().wait();
    const std::vector<std::size_t> beyond{4};
    EXPECT_EQ(thrown_by([&] { numbers.reducer().freeze(beyond); }).code(), ErrorCode::invalid_argument);
    // On one rank alone it is a list that no other has.
    const std::vector<std::size_t> own = communicator.rank() == 1 ? beyond : std::vector<std::size_t>{};
    const Error alone = thrown_by([&] { numbers.reducer().freeze(own); });
    EXPECT_EQ(alone.code(), ErrorCode::mismatch);
    EXPECT_EQ(alone.culprit(), 1);
  });
}

// ---- what happened

TEST(Statistics, TellWhereTheTimeOfAStepWent) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 6, {.bucket_bytes = 128, .first_bucket_bytes = 64});
    Reducer& reducer = numbers.reducer();
    EXPECT_EQ(reducer.report(), "no step has ended yet");
    for (std::size_t i = 6; i-- > 0;) numbers.mark(i);
    reducer.wait();
    const StepStatistics s = reducer.statistics();
    EXPECT_EQ(s.bytes, 6 * sizeof(float));
    ASSERT_EQ(s.timeline.size(), reducer.plan().buckets.size());
    std::size_t bytes = 0;
    for (std::size_t b = 0; b < s.timeline.size(); ++b) {
      bytes += s.timeline[b].bytes;
      EXPECT_GT(s.timeline[b].started.count(), 0);
      EXPECT_GE(s.timeline[b].done, s.timeline[b].started);
      EXPECT_LE(s.timeline[b].done, s.duration);
      if (b > 0) {
        EXPECT_GE(s.timeline[b].started, s.timeline[b - 1].started);
      }
    }
    EXPECT_EQ(bytes, s.bytes);
    EXPECT_LE(s.exposed, s.communication);
    EXPECT_LE(s.communication, s.duration);
    EXPECT_LE(s.exposed, s.waited);
    EXPECT_LE(s.waited_for_latest, s.waited);
    EXPECT_GE(s.duration, s.backward + s.waited);
    EXPECT_TRUE(s.latest_rank == 0 || s.latest_rank == 1);
    EXPECT_EQ(reducer.report().rfind("step 1: ", 0), 0u) << reducer.report();
  });
}

}  // namespace
}  // namespace lockstep
