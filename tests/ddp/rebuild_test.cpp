// Buckets that are laid out anew in the order in which gradients became ready.
#include <gtest/gtest.h>

#include "tests/ddp/numbers.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

/// Bucket of each parameter.
std::vector<std::size_t> buckets_of(const BucketPlan& plan, std::size_t parameters) {
  std::vector<std::size_t> all(parameters);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (const GradientPart& part : plan.buckets[b].parts) all[part.parameter] = b;
  }
  return all;
}

ReducerOptions of_a_static_graph() {
  ReducerOptions options{.bucket_bytes = 192, .first_bucket_bytes = 64};
  options.gradients_as_views = false;
  options.static_graph = true;
  return options;
}

TEST(Rebuild, FollowsTheOrderOfRankZeroWhereNoPointerIsLost) {
  for (const bool views : {false, true}) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      int moved = 0;
      ReducerOptions options{.bucket_bytes = 192, .first_bucket_bytes = 64};
      options.gradients_as_views = views;
      if (views) options.gradients_moved = [&] { ++moved; };
      Numbers numbers(communicator, 6, options);
      EXPECT_EQ(buckets_of(numbers.reducer().plan(), 6), (std::vector<std::size_t>{2, 2, 1, 1, 1, 0}));
      const std::size_t first_order[2][6] = {{2, 0, 1, 5, 3, 4}, {4, 3, 5, 1, 0, 2}};
      for (int step = 0; step < 3; ++step) {
        for (const std::size_t i : first_order[communicator.rank()]) numbers.mark(i);
        numbers.reducer().wait();
        for (std::size_t i = 0; i < 6; ++i) numbers.expect(i, 1.5);
        EXPECT_EQ(buckets_of(numbers.reducer().plan(), 6), (std::vector<std::size_t>{1, 1, 0, 2, 2, 1}));
        EXPECT_EQ(moved, views ? 1 : 0);
      }
    });
  }
}

TEST(Rebuild, ACallerThatThrowsWhenGradientsMovedHasEndedTheStep) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    ReducerOptions options{.bucket_bytes = 192, .first_bucket_bytes = 64};
    options.gradients_moved = [&] {
      if (communicator.rank() == 1) throw Error(ErrorCode::internal, "no room for new pointers");
    };
    Numbers numbers(communicator, 6, options);
    for (int step = 0; step < 3; ++step) {
      for (const std::size_t i : {2u, 0u, 1u, 5u, 3u, 4u}) numbers.mark(i);
      if (step == 0 && communicator.rank() == 1) {
        EXPECT_STREQ(thrown_by([&] { numbers.reducer().wait(); }).what(), "no room for new pointers");
      } else {
        numbers.reducer().wait();
      }
      EXPECT_EQ(numbers.reducer().steps(), static_cast<std::uint64_t>(step) + 1);
      for (std::size_t i = 0; i < 6; ++i) numbers.expect(i, 1.5);
    }
  });
}

TEST(Rebuild, LeavesViewsWhereTheyAre) {
  for (const bool mixed : {false, true}) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      ReducerOptions options{.bucket_bytes = 192, .first_bucket_bytes = 64};
      options.gradients_as_views = !mixed || communicator.rank() == 0;
      Numbers numbers(communicator, 6, options);
      const BucketPlan before = numbers.reducer().plan();
      for (const std::size_t i : {2u, 0u, 1u, 5u, 3u, 4u}) numbers.mark(i);
      numbers.reducer().wait();
      EXPECT_EQ(numbers.reducer().plan(), before);
    });
  }
}

TEST(Rebuild, KeepsWhatAStaticGraphHasLearned) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Numbers numbers(communicator, 4, of_a_static_graph());
    const BucketPlan before = numbers.reducer().plan();
    for (int step = 1; step <= 2; ++step) {
      for (const std::size_t i : {2u, 0u, 1u, 1u, 3u}) numbers.mark(i);  // Parameter 1 twice.
      numbers.reducer().wait();
    }
    EXPECT_NE(numbers.reducer().plan(), before);
    for (const std::size_t i : {1u, 1u}) numbers.mark(i);
    EXPECT_NE(std::string(thrown_by([&] { numbers.mark(1); }).what()).find("already marked in step 3"),
              std::string::npos);
    EXPECT_EQ(thrown_by([&] { numbers.reducer().wait(); }).culprit(), 0);
  });
}

/// Its marks were not counted yet when the buckets are laid out anew.
TEST(Rebuild, LetsARankThatHadNoDataUntilThenLearnItsGraph) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Numbers numbers(communicator, 4, of_a_static_graph());
    for (int step = 1; step <= 5; ++step) {
      const bool has_data = step > 2 || communicator.rank() == 0;
      ASSERT_TRUE(numbers.reducer().begin_step(has_data ? 1 : 0));
      for (const std::size_t i : {2u, 0u, 1u, 1u, 3u}) {
        if (has_data) numbers.mark(i);  // Parameter 1 twice.
      }
      numbers.reducer().wait();
      for (std::size_t i = 0; i < 4; ++i) numbers.expect(i, step > 2 ? 1.5 : 0.5);
    }
    EXPECT_EQ(buckets_of(numbers.reducer().plan(), 4), (std::vector<std::size_t>{1, 1, 0, 1}));
  });
}

/// The step that counts marks sees no order, whatever its number.
TEST(Rebuild, FollowsAnOrderThatWasSeenAfterACheckpoint) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Numbers numbers(communicator, 4, of_a_static_graph());
    numbers.reducer().restored(10);
    for (int step = 0; step < 2; ++step) {
      for (const std::size_t i : {2u, 0u, 1u, 1u, 3u}) numbers.mark(i);  // Parameter 1 twice.
      numbers.reducer().wait();
    }
    EXPECT_EQ(buckets_of(numbers.reducer().plan(), 4), (std::vector<std::size_t>{1, 1, 0, 1}));
  });
}

/// All ranks lay out anew after the same step, wherever a checkpoint leads.
TEST(Rebuild, ComesAfterTheSameStepWhereARankHadNoDataBeforeACheckpoint) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Numbers numbers(communicator, 4, of_a_static_graph());
    for (int step = 1; step <= 4; ++step) {
      const bool has_data = step > 1 || communicator.rank() == 0;
      if (step == 2) numbers.reducer().restored(10);
      ASSERT_TRUE(numbers.reducer().begin_step(has_data ? 1 : 0));
      for (const std::size_t i : {2u, 0u, 1u, 1u, 3u}) {
        if (has_data) numbers.mark(i);  // Parameter 1 twice.
      }
      numbers.reducer().wait();
      for (std::size_t i = 0; i < 4; ++i) numbers.expect(i, step > 1 ? 1.5 : 0.5);
    }
    EXPECT_EQ(buckets_of(numbers.reducer().plan(), 4), (std::vector<std::size_t>{1, 1, 0, 1}));
  });
}

}  // namespace
}  // namespace lockstep
