// StartedWorks: what becomes of a step's collectives once one of them has failed, or never began.
#include "ddp/started_works.hpp"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::internal {
namespace {

using testing::on_ranks;
using testing::thrown_by;

const Error kFirst(ErrorCode::peer_lost, "the first", 1);

Work sum(Communicator& communicator, float& value) {
  return communicator.all_reduce_async(&value, &value, 1, DataType::f32, ReduceOp::sum);
}

TEST(StartedWorks, NothingBeginsAfterAnErrorUntilTheStepHasEnded) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    float value = 1;
    StartedWorks works(communicator);
    works.start([&] { return sum(communicator, value); });
    EXPECT_FALSE(works.failed());
    works.start([]() -> Work { throw kFirst; });
    EXPECT_TRUE(works.failed());
    bool begun = false;
    works.start([&] {
      begun = true;
      return sum(communicator, value);
    });
    EXPECT_FALSE(begun);
    EXPECT_EQ(works.in_flight(), 1u);
    works.await(0);  // Has begun, and ended well.
    EXPECT_STREQ(thrown_by([&] { works.await(1); }).what(), "the first");
    EXPECT_STREQ(thrown_by([&] { works.await(2); }).what(), "the first");

    const auto failure = works.finish();
    ASSERT_TRUE(failure);
    EXPECT_STREQ(failure->what(), "the first");
    EXPECT_EQ(failure->culprit(), 1);
    EXPECT_FALSE(works.failed());
    EXPECT_EQ(works.in_flight(), 0u);
    works.start([&] { return sum(communicator, value); });
    EXPECT_EQ(works.in_flight(), 1u);
    EXPECT_EQ(works.await_first(), 0u);  // Numbers begin anew.
    EXPECT_FALSE(works.finish());
  });
}

TEST(StartedWorks, TheFirstErrorCounts) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    StartedWorks works(communicator);
    works.fail(kFirst);
    works.fail(Error(ErrorCode::timeout, "a later one"));
    EXPECT_STREQ(works.finish()->what(), "the first");
    EXPECT_FALSE(works.finish());
  });
}

/// The buckets are not free before.
TEST(StartedWorks, TheStepEndsOnceAllThatBeganHaveEnded) {
  std::atomic<bool> ending{false};
  on_ranks(2, "auto", [&](Communicator& communicator) {
    float values[] = {1, 1};
    StartedWorks works(communicator);
    if (communicator.rank() == 1) ending.wait(false);
    for (float& value : values) works.start([&] { return sum(communicator, value); });
    works.fail(kFirst);
    ending = true;
    ending.notify_all();
    EXPECT_TRUE(works.finish());
    EXPECT_EQ(values[0] + values[1], 4);
  });
}

TEST(StartedWorks, TheyAreWaitedForOneByOneThoughOneFails) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    float values[] = {1, 1, 1};
    StartedWorks works(communicator);
    EXPECT_FALSE(works.first_done());
    works.start([&] { return sum(communicator, values[0]); });
    EXPECT_EQ(works.await_first(), 0u);
    EXPECT_EQ(values[0], 2);
    EXPECT_FALSE(works.first_done());  // There is none.
    if (communicator.rank() == 1) return communicator.abort("enough");
    works.start([&] { return sum(communicator, values[1]); });
    works.start([&] { return sum(communicator, values[2]); });
    EXPECT_EQ(works.in_flight(), 2u - (works.failed() ? 1u : 0u));  // The second may know of the abort.
    EXPECT_EQ(thrown_by([&] { works.await(1); }).code(), ErrorCode::aborted);
    EXPECT_EQ(works.await_first(), 1u);
    EXPECT_TRUE(works.failed());
    const auto failure = works.finish();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code(), ErrorCode::aborted);
  });
}

/// They would wait for what never began.
TEST(StartedWorks, OfARankWithoutMemoryThePeersAreTold) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    float value = 1;
    StartedWorks works(communicator);
    if (communicator.rank() == 0) {
      works.start([]() -> Work { throw std::bad_alloc(); });
    } else {
      works.start([&] { return sum(communicator, value); });
    }
    const auto failure = works.finish();
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code(), ErrorCode::out_of_memory) << failure->what();
    EXPECT_EQ(failure->culprit(), 0);
    EXPECT_NE(std::string(failure->what()).find("rank 0 has no memory to start a bucket"), std::string::npos)
        << failure->what();
  });
}

}  // namespace
}  // namespace lockstep::internal
