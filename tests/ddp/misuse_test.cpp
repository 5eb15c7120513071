// Bad use of a Reducer within a step: one error, the same on every rank; gradients stay as they were; and the
// next step works. Bit for bit and with sharded training: untouched_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/ddp.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

constexpr int kRanks = 3;
constexpr int kCulprit = 1;

/// Views with copies to fall back on, gradients kept by the caller, and both reduced after all ranks agreed.
std::vector<ReducerOptions> all_ways() {
  std::vector<ReducerOptions> ways(
      4, {.bucket_bytes = 4'000, .first_bucket_bytes = 1'000, .check_first = false});
  ways[1].gradients_as_views = false;
  ways[2].check_first = true;
  ways[3].gradients_as_views = false;
  ways[3].check_first = true;
  return ways;
}

void write_all(Reducer& reducer, const Model& model, int rank) {
  for (std::size_t i = 0; i < model.tensors(); ++i) write_gradient(reducer, model, i, rank, 0);
}

void expect_untouched(const Reducer& reducer, const Model& model, int rank) {
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    const auto* gradient = static_cast<const float*>(reducer.gradient(i));
    for (std::size_t e = 0; e < model.elements(i); ++e) {
      ASSERT_EQ(gradient[e], local_gradient(rank, 0, i, e)) << "tensor " << i << ", element " << e;
    }
  }
}

void expect_good_step(Reducer& reducer, const Model& model, Communicator& communicator) {
  write_all(reducer, model, communicator.rank());
  for (std::size_t i = 0; i < model.tensors(); ++i) reducer.mark_ready(i);
  reducer.wait();
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    for (std::size_t e = 0; e < model.elements(i); ++e) {
      ASSERT_NEAR(static_cast<float*>(reducer.gradient(i))[e], summed_gradient(kRanks, 0, i, e) / kRanks,
                  1e-4);
    }
  }
}

/// Runs a step in which `mark_all(reducer, rank)` does something wrong on kCulprit; expects the same `text`
/// everywhere.
template <typename MarkAll>
void expect_failed_step(const ReducerOptions& options, const std::string& text, MarkAll mark_all) {
  for (const char* transports : {"shm", "tcp"}) {
    on_ranks(kRanks, transports, [&](Communicator& communicator) {
      Model model(12, 1);
      Reducer reducer(communicator, model.list(options), options);
      const int rank = communicator.rank();
      write_all(reducer, model, rank);
      mark_all(reducer, model, rank);
      const Error error = thrown_by([&] { reducer.wait(); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(error.culprit(), kCulprit);
      EXPECT_EQ(std::string(error.what()).rfind("gradients of step 1: " + text, 0), 0u) << error.what();
      expect_untouched(reducer, model, rank);
      expect_good_step(reducer, model, communicator);
    });
  }
}

void mark_all_but(Reducer& reducer, const Model& model, const std::vector<std::size_t>& left_out) {
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    if (std::find(left_out.begin(), left_out.end(), i) == left_out.end()) reducer.mark_ready(i);
  }
}

TEST(Misuse, AGradientThatWasNeverMarkedIsNamedWithItsRank) {
  for (const ReducerOptions& options : all_ways()) {
    expect_failed_step(
        options,
        "rank 1 did not mark 2 of 12 gradients: \"tensor3\" (3), \"tensor7\" (7); mark every gradient",
        [](Reducer& reducer, const Model& model, int rank) {
          mark_all_but(reducer, model,
                       rank == kCulprit ? std::vector<std::size_t>{3, 7} : std::vector<std::size_t>{});
        });
  }
}

TEST(Misuse, AllRanksThatMissedGradientsAreNamed) {
  for (const ReducerOptions& options : all_ways()) {
    expect_failed_step(options,
                       "rank 1 did not mark 1 of 12 gradients: \"tensor3\" (3); rank 2 did not mark 1 of 12 "
                       "gradients: \"tensor0\" (0); mark every gradient",
                       [](Reducer& reducer, const Model& model, int rank) {
                         const std::vector<std::size_t> left_out[kRanks] = {{}, {3}, {0}};
                         mark_all_but(reducer, model, left_out[rank]);
                       });
  }
}

TEST(Misuse, WaitBeforeAnythingWasMarkedNamesAFewOfMany) {
  for (const ReducerOptions& options : all_ways()) {
    expect_failed_step(options, "rank 1 did not mark 12 of 12 gradients: \"tensor0\" (0), ",
                       [](Reducer& reducer, const Model& model, int rank) {
                         if (rank != kCulprit) mark_all_but(reducer, model, {});
                       });
  }
}

TEST(Misuse, AGradientMarkedTwiceFailsTheStepEverywhere) {
  for (const ReducerOptions& options : all_ways()) {
    for (const std::size_t again : {2u, 11u}) {
      expect_failed_step(
          options, "rank 1 marked \"tensor" + std::to_string(again) + "\" (",
          [&](Reducer& reducer, const Model& model, int rank) {
            mark_all_but(reducer, model, {});
            if (rank != kCulprit) return;
            const Error error = thrown_by([&] { reducer.mark_ready(again); });
            EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
            EXPECT_NE(std::string(error.what()).find("was already marked in step 1"), std::string::npos)
                << error.what();
          });
    }
  }
}

TEST(Misuse, WithoutUndoTheErrorIsTheSameAndTheNextStepWorks) {
  on_ranks(kRanks, "auto", [](Communicator& communicator) {
    Model model(12, 1);
    Reducer reducer(communicator, model.list(),
                    {.bucket_bytes = 4'000, .first_bucket_bytes = 1'000, .undo = false});
    for (int round = 0; round < 3; ++round) {
      write_all(reducer, model, communicator.rank());
      mark_all_but(
          reducer, model,
          communicator.rank() == kCulprit ? std::vector<std::size_t>{11} : std::vector<std::size_t>{});
      const Error error = thrown_by([&] { reducer.wait(); });
      EXPECT_EQ(error.culprit(), kCulprit);
      EXPECT_NE(std::string(error.what()).find("\"tensor11\" (11)"), std::string::npos) << error.what();
      expect_good_step(reducer, model, communicator);
    }
  });
}

TEST(Misuse, WhoLeavesAfterItsErrorTellsThePeersWhy) {
  on_ranks(kRanks, "auto", [](Communicator& communicator) {
    Model model(12, 1);
    Reducer reducer(communicator, model.list(), {.bucket_bytes = 1, .first_bucket_bytes = 1});
    if (communicator.rank() == kCulprit) {
      reducer.mark_ready(5);
      thrown_by([&] { reducer.mark_ready(5); });
      return;
    }
    mark_all_but(reducer, model, {});
    const Error error = thrown_by([&] { reducer.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_EQ(error.culprit(), kCulprit);
    EXPECT_NE(std::string(error.what())
                  .find("destroyed its Reducer in the midst of step 1, in which it marked "
                        "\"tensor5\" (5) once too often"),
              std::string::npos)
        << error.what();
  });
}

/// Whose handle of the communicator is gone.
TEST(Misuse, WhoCannotGoOnTellsThePeersWhy) {
  on_ranks(kRanks, "auto", [](Communicator& communicator) {
    Model model(2, 1);
    const int rank = communicator.rank();
    Reducer reducer = [&] {
      Communicator own = std::move(communicator);
      return Reducer(own, model.list());
    }();
    if (rank == kCulprit) return reducer.abort("the loss is no number");
    mark_all_but(reducer, model, {});
    const Error error = thrown_by([&] { reducer.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_EQ(error.culprit(), kCulprit);
    EXPECT_NE(std::string(error.what()).find("the loss is no number"), std::string::npos) << error.what();
  });
}

/// Their buckets have equal sizes, so that only the steps tell them apart.
TEST(Misuse, StepsOfTwoReducersInDifferentOrderAreNamedAndChangeNothing) {
  on_ranks(kRanks, "auto", [](Communicator& communicator) {
    Model model(12, 1);
    Reducer first(communicator, model.list()), second(communicator, model.list());
    const bool culprit = communicator.rank() == kCulprit;
    Reducer* order[] = {culprit ? &second : &first, culprit ? &first : &second};
    for (Reducer* reducer : order) write_all(*reducer, model, communicator.rank());
    for (Reducer* reducer : order) {
      mark_all_but(*reducer, model, {});
      const Error error = thrown_by([&] { reducer->wait(); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.culprit(), kCulprit);
      EXPECT_NE(std::string(error.what()).find("rank 1 is in another step than rank 0: of another reducer"),
                std::string::npos)
          << error.what();
      expect_untouched(*reducer, model, communicator.rank());
    }
    expect_good_step(first, model, communicator);
    expect_good_step(second, model, communicator);
  });
}

/// To the communicator they are the same: a few words from each rank. A list to freeze was taken for numbers
/// of samples.
TEST(Misuse, BeginStepBesideFreezeOrThatOfAnotherReducerIsNamedAndChangesNothing) {
  on_ranks(kRanks, "auto", [](Communicator& communicator) {
    Model model(12, 1);
    Reducer first(communicator, model.list()), second(communicator, model.list());
    const bool culprit = communicator.rank() == kCulprit;
    const auto expect_named = [&](const std::function<void()>& here, const std::string& text) {
      const Error error = thrown_by(here);
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.culprit(), kCulprit);
      EXPECT_EQ(std::string(error.what()).find(text), 0u) << error.what();
    };
    expect_named([&] { culprit ? first.freeze(std::array{std::size_t{2}}) : void(first.begin_step(4)); },
                 "begin_step: rank 1 called freeze where rank 0 called begin_step; ");
    expect_named([&] { (culprit ? second : first).begin_step(4); },
                 "begin_step: rank 1 called that of another reducer than rank 0; ");
    EXPECT_TRUE(first.begin_step(4));
    expect_good_step(first, model, communicator);
    EXPECT_TRUE(first.used(2)) << "frozen";
  });
}

TEST(Misuse, BeginStepOnSomeRanksIsNamedToThem) {
  on_ranks(kRanks, "auto", [](Communicator& communicator) {
    Model model(12, 1);
    Reducer reducer(communicator, model.list());
    const bool begins = communicator.rank() != kCulprit;
    const Error error = thrown_by([&] {
      if (begins) reducer.begin_step(4);
      reducer.wait();
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    EXPECT_EQ(std::string(error.what()).find(begins ? "begin_step: " : "gradients of step 1: "), 0u)
        << error.what();
  });
}

// ---- values that are not finite

TEST(NonFinite, GradientsAreNamedOnEveryRankAndDoNotSpread) {
  for (const auto& [views, undo] : {std::pair(true, true), {true, false}, {false, true}}) {
    for (const bool first : {true, false}) {
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        on_ranks(kRanks, "auto", [&, views = views, undo = undo](Communicator& communicator) {
          Model model(12, 1);
          ReducerOptions options{.bucket_bytes = 4'000, .first_bucket_bytes = 1'000};
          options.gradients_as_views = views;
          options.undo = undo;  // Without, peers have sums that this gradient was left out of.
          options.check_finite = true;
          options.check_first = first;
          Reducer reducer(communicator, model.list(options), options);
          const bool culprit = communicator.rank() == kCulprit;
          write_all(reducer, model, communicator.rank());
          if (culprit) static_cast<float*>(reducer.gradient(4))[model.elements(4) - 1] = bad;
          mark_all_but(reducer, model, {});
          try {
            reducer.wait();
            ADD_FAILURE() << "no error";
          } catch (const NonFiniteGradient& error) {
            EXPECT_EQ(error.parameter(), 4u);
            EXPECT_EQ(error.culprit(), kCulprit);
            EXPECT_NE(std::string(error.what())
                          .find("gradients of step 1: rank 1 has an infinity or a NaN in the "
                                "gradient of \"tensor4\" (4)"),
                      std::string::npos)
                << error.what();
          }
          for (std::size_t i = 0; i < model.tensors() && !culprit; ++i) {
            const auto* gradient = static_cast<const float*>(reducer.gradient(i));
            for (std::size_t e = 0; e < model.elements(i); ++e) ASSERT_TRUE(std::isfinite(gradient[e]));
          }
          expect_good_step(reducer, model, communicator);
        });
      }
    }
  }
}

// ---- replicas

TEST(Replicas, ThatDifferAreNamedByTensorAndRankEveryFewSteps) {
  on_ranks(kRanks, "auto", [](Communicator& communicator) {
    Model model(12, 1);
    ReducerOptions options;
    options.check_replicas_every = 3;
    Reducer reducer(communicator, model.list(options), options);
    for (int step = 1; step <= 4; ++step) expect_good_step(reducer, model, communicator);
    if (communicator.rank() == 2) model.values(5)[3] += 1e-6f;
    expect_good_step(reducer, model, communicator);
    const Error error = thrown_by([&] { expect_good_step(reducer, model, communicator); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(error.culprit(), 2);
    EXPECT_NE(std::string(error.what())
                  .find("gradients of step 6: the replicas differ: parameter 5, \"tensor5\" f32 ["),
              std::string::npos)
        << error.what();
  });
}

}  // namespace
}  // namespace lockstep
