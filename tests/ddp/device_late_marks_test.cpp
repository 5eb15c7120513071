// Marks of a DeviceReducer that come when wait() has begun: they are refused, and leave the step and the next
// one alone. In forked ranks over the host backend.
#include <gtest/gtest.h>
#include <unistd.h>

#include <mutex>
#include <string>
#include <thread>

#include "tests/ddp/forked_twins.hpp"
#include "tests/ddp/inside.hpp"

namespace lockstep {
namespace {

using testing::kParameters;
using testing::on_forked_ranks;
using testing::step;
using testing::thrown_by;
using testing::Twins;

constexpr std::size_t kLate = kParameters - 1;

void await_closed(DeviceReducer& reducer) {
  for (;; std::this_thread::yield()) {
    const std::lock_guard lock(inside(reducer).mutex);
    if (inside(reducer).step.closed) return;
  }
}

void expect_refused(Twins& twins) {
  const Error error = thrown_by([&] { twins.on_device->mark_ready(kLate, twins.stream); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  const std::string what = error.what();
  EXPECT_NE(what.find("mark_ready(4): \"p4\" came after wait() had been called"), std::string::npos) << what;
}

/// Rank 1 ends the step, and lets rank 0 end it, when rank 0 was refused its mark.
TEST(DeviceLateMarks, OfAStepThatFindsUnusedParametersAreRefused) {
  for (const bool rebuilds : {false, true}) {
    SCOPED_TRACE(rebuilds ? "rebuilt" : "as they are");
    int ends[2] = {};
    ASSERT_EQ(::pipe(ends), 0);
    on_forked_ranks(2, [&](Communicator& host) {
      DeviceReducerOptions options;
      options.find_unused = true;
      if (rebuilds) options.gradients_moved = [] {};
      Twins twins(host, options);
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, 1);
        if (i != kLate) twins.mark(i);
      }
      char word = 1;
      if (host.rank() == 1) {
        ASSERT_EQ(::read(ends[0], &word, 1), 1);
        twins.on_device->wait(twins.stream);
      } else {
        std::thread late([&] {
          await_closed(*twins.on_device);
          expect_refused(twins);
          ASSERT_EQ(::write(ends[1], &word, 1), 1);
        });
        twins.on_device->wait(twins.stream);
        late.join();
      }
      twins.on_host->wait();
      EXPECT_FALSE(twins.on_device->used(kLate));
      twins.expect_equal("after a mark that was refused");
      step(twins, 2);
      twins.expect_equal("in the step after it");
    });
    for (const int end : ends) ::close(end);
  }
}

/// A thread that has marked the last of a bucket, and stops before it looks for full ones until the next step
/// may begin: a static graph whose first parameters are never marked has full buckets from the start.
TEST(DeviceLateMarks, StartNoBucketOfAStepThatHasNotBegun) {
  on_forked_ranks(1, [](Communicator& host) {
    DeviceReducerOptions options;
    options.static_graph = true;
    Twins twins(host, options);
    for (unsigned number = 0; number < 2; ++number) {
      step(twins, number, kLate);
      auto& state = inside(*twins.on_device);
      ASSERT_TRUE(state.plan.tracker.full(0));
      state.start_full_buckets();
      EXPECT_EQ(state.started, 0u);
      twins.expect_equal("after a step that leaves the first bucket alone");
    }
  });
}

}  // namespace
}  // namespace lockstep
