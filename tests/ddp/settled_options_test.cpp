// ReducerOptions::check_first when nobody says: by the cores of the one host, or no.
#include <gtest/gtest.h>
#include <sched.h>

#include "lib/base/core_set.hpp"
#include "lockstep/ddp.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/host_of_rank.hpp"

namespace lockstep {
namespace {

using internal::testing::run_forked;
using testing::MeetingPlace;

constexpr int kRanks = 2;

void bind_to_first_core() {
  const internal::CoreSet allowed = internal::allowed_cores();
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(allowed._Find_first(), &first);
  ASSERT_EQ(::sched_setaffinity(0, sizeof first, &first), 0);
}

/// Undo copies are what a step has that begins before all ranks agree.
bool starts_in_backward(int rank, const MeetingPlace& place, const ReducerOptions& options) {
  Communicator communicator = place.join(rank, kRanks, "auto");
  Model model(3, 1);
  Reducer reducer(communicator, model.list(), options);
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    write_gradient(reducer, model, i, rank, 0);
    reducer.mark_ready(i);
  }
  reducer.wait();
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    if (model.elements(i) == 0) continue;
    EXPECT_EQ(static_cast<float*>(reducer.gradient(i))[0], summed_gradient(kRanks, 0, i, 0) / kRanks);
  }
  const bool starts = reducer.undo_bytes() > 0;
  communicator.finalize();
  return starts;
}

TEST(CheckFirst, IsTakenWhereTheHostHasNoCoreToSpare) {
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    bind_to_first_core();
    EXPECT_FALSE(starts_in_backward(rank, place, {}));
  });
}

TEST(CheckFirst, IsNotTakenWhenToldSoOrWhenTheForwardOverlaps) {
  for (const ReducerOptions& options :
       {ReducerOptions{.check_first = false}, ReducerOptions{.overlap_forward = true}}) {
    const MeetingPlace place;
    run_forked(kRanks, [&](int rank) {
      bind_to_first_core();
      EXPECT_TRUE(starts_in_backward(rank, place, options));
    });
  }
}

TEST(CheckFirst, FollowsTheCoresOfTheMachine) {
  const bool spare = internal::allowed_cores().count() > kRanks;
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) { EXPECT_EQ(starts_in_backward(rank, place, {}), spare); });
}

TEST(CheckFirst, IsNotTakenBetweenHosts) {
  const MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    testing::live_on_host(rank);
    bind_to_first_core();
    EXPECT_TRUE(starts_in_backward(rank, place, {}));
  });
}

}  // namespace
}  // namespace lockstep
