#include "lib/bootstrap/deadline.hpp"

#include <gtest/gtest.h>

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

class SetClock final : public Env {
 public:
  Nanos now() noexcept override { return time; }
  std::uint64_t random() noexcept override { return 0; }
  void wake_at(Nanos) noexcept override {}

  Nanos time = 1'000'000'000;
};

// 0 would mean for ever to whom it is passed on.
TEST(Deadline, LeavesSomethingOrIsAnError) {
  SetClock clock;
  const Deadline deadline(clock, milliseconds(2000));
  EXPECT_EQ(deadline.left_for("a test").value(), milliseconds(2000));
  clock.time = deadline.when() - 1;
  EXPECT_EQ(deadline.left_for("a test").value(), milliseconds(1));
  for (const Nanos late : {0, 1, 1'000'000}) {
    clock.time = deadline.when() + late;
    const auto left = deadline.left_for("a test");
    ASSERT_FALSE(left.ok());
    EXPECT_EQ(left.status().code(), ErrorCode::timeout);
    EXPECT_EQ(left.status().message(), "no time was left for a test after 2 s");
  }
}

}  // namespace
}  // namespace lockstep::internal
