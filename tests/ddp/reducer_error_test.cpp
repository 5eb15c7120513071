// What goes wrong around a Reducer: different models, misuse within a step, peers that fail or leave.
#include <gtest/gtest.h>

#include <string>

#include "lockstep/ddp.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

void expect_text(const Error& error, const std::string& text) {
  EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
}

/// One whole step, to show that the reducer is still usable.
void expect_step_works(Reducer& reducer, const Model& model, Communicator& communicator) {
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    write_gradient(reducer, model, i, communicator.rank(), 0);
    reducer.mark_ready(i);
  }
  reducer.wait();
  const float expected =
      summed_gradient(communicator.size(), 0, 0, 0) / static_cast<float>(communicator.size());
  EXPECT_FLOAT_EQ(static_cast<float*>(reducer.gradient(0))[0], expected);
}

TEST(ReducerErrors, EveryRankNamesTheFirstParameterThatDiffers) {
  for (int odd = 0; odd < 3; ++odd) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      Model model(6, 1);
      auto list = model.list();
      if (communicator.rank() == odd) list[2].shape = {1, 1};
      const Error error = thrown_by([&] { Reducer reducer(communicator, list); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.culprit(), odd);
      expect_text(error, "parameter 2 differs on rank " + std::to_string(odd) +
                             ", which has \"tensor2\" f32 [1, 1]; rank ");
      Reducer again(communicator, model.list());  // Nobody was left behind: the group is in step.
      expect_step_works(again, model, communicator);
    });
  }
}

TEST(ReducerErrors, EveryRankNamesTheOneThatCannotStart) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(4, 1);
    auto list = model.list();
    if (communicator.rank() == 1) list[3].value = nullptr;
    const Error error = thrown_by([&] { Reducer reducer(communicator, list); });
    EXPECT_EQ(error.code(), communicator.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::refused);
    EXPECT_EQ(error.culprit(), 1);
    expect_text(error, "parameter 3, \"tensor3\"");
    expect_text(error, "has a null value");
  });
}

/// Views are the default: a rank whose backward wrote there would train on gradients of its own.
TEST(ReducerErrors, EveryRankNamesMemoryForGradientsThatNothingWouldRead) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(4, 1);
    const auto own = model.list({.gradients_as_views = false});
    const bool culprit = communicator.rank() == 1;
    const auto expect_named = [](const Error& error) {
      expect_text(error, "parameter 0, \"tensor0\"");
      expect_text(error, "has memory for its gradient, which nothing reads");
    };
    const Error all = thrown_by([&] { Reducer reducer(communicator, own); });
    EXPECT_EQ(all.code(), ErrorCode::invalid_argument);
    expect_named(all);
    const Error one = thrown_by([&] { Reducer reducer(communicator, culprit ? own : model.list()); });
    EXPECT_EQ(one.code(), culprit ? ErrorCode::invalid_argument : ErrorCode::refused);
    EXPECT_EQ(one.culprit(), 1);
    expect_named(one);
    const ReducerOptions options{.gradients_as_views = !culprit};  // Each rank as it likes.
    Reducer reducer(communicator, model.list(options), options);
    expect_step_works(reducer, model, communicator);
  });
}

TEST(ReducerErrors, RefusesAnEmptyModelOnEveryRank) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    const Error error = thrown_by([&] { Reducer reducer(communicator, {}); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    expect_text(error, "there are no parameters");
  });
}

TEST(ReducerErrors, NamesAnIndexThatDoesNotExist) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 1);
    Reducer reducer(communicator, model.list());
    expect_text(thrown_by([&] { reducer.mark_ready(4); }), "mark_ready(4): the reducer has 4 parameters");
    expect_text(thrown_by([&] { reducer.gradient(9); }), "gradient(9): the reducer has 4 parameters");
    expect_step_works(reducer, model, communicator);
  });
}

TEST(ReducerErrors, WaitReportsAPeersAbortAndEveryLaterStepToo) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(6, 1);
    Reducer reducer(communicator, model.list(), {.bucket_bytes = 1, .first_bucket_bytes = 1});
    communicator.barrier();  // All have made theirs.
    if (communicator.rank() == 2) {
      communicator.abort("out of coffee");
      return;
    }
    for (int step = 0; step < 2; ++step) {
      for (std::size_t i = 0; i < model.tensors(); ++i) reducer.mark_ready(i);
      const Error error = thrown_by([&] { reducer.wait(); });
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_EQ(error.culprit(), 2);
      expect_text(error, "gradients of step 1: ");
      expect_text(error, "out of coffee");
    }
    EXPECT_EQ(reducer.statistics().step, 0u);
  });
}

TEST(ReducerErrors, DestructionInTheMidstOfAStepTellsThePeers) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(6, 1);
    Reducer reducer(communicator, model.list(), {.bucket_bytes = 1, .first_bucket_bytes = 1});
    if (communicator.rank() == 0) {
      reducer.mark_ready(5);
      const Reducer gone(std::move(reducer));
      return;
    }
    for (std::size_t i = 0; i < model.tensors(); ++i) reducer.mark_ready(i);
    const Error error = thrown_by([&] { reducer.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_EQ(error.culprit(), 0);
    expect_text(error, "rank 0 destroyed its Reducer in the midst of step 1");
  });
}

/// A data loader that throws between begin_step() and the first mark; a rank without data that gives up.
TEST(ReducerErrors, DestructionOfAReducerWhoseStepIsOpenTellsThePeers) {
  for (const std::uint64_t samples : {1u, 0u}) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(6, 1);
      Reducer reducer(communicator, model.list(), {.check_first = true});
      const bool quitter = communicator.rank() == 1;
      ASSERT_TRUE(reducer.begin_step(quitter ? samples : 1));
      if (quitter) return;
      for (std::size_t i = 0; i < model.tensors(); ++i) reducer.mark_ready(i);
      const Error error = thrown_by([&] { reducer.wait(); });
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_EQ(error.culprit(), 1);
      expect_text(error, "rank 1 destroyed its Reducer in the midst of step 1");
    });
  }
}

TEST(ReducerErrors, StepsOfDifferentNumbersAreNotAddedUp) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 1);
    Reducer reducer(communicator, model.list());
    reducer.restored(communicator.rank() == 0 ? 5 : 4);
    for (std::size_t i = 0; i < model.tensors(); ++i) reducer.mark_ready(i);
    const Error error = thrown_by([&] { reducer.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(error.culprit(), 1);
    expect_text(error, "rank 1 is in another step than rank 0");
  });
}

}  // namespace
}  // namespace lockstep
