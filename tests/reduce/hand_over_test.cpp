// Which way copies go to memory that other cores read.
#include "lib/reduce/hand_over.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace lockstep::internal {
namespace {

/// What is timed takes as long as is said; the rest takes no time.
class ScriptedClock final : public Env {
 public:
  std::deque<Nanos> durations;
  Nanos now() noexcept override {
    if (begun_ && !durations.empty()) {
      time_ += durations.front();
      durations.pop_front();
    }
    begun_ = !begun_;
    return time_;
  }
  std::uint64_t random() noexcept override { return 0; }
  void wake_at(Nanos) noexcept override {}

 private:
  Nanos time_ = 0;
  bool begun_ = false;
};

class HandOverTest : public ::testing::Test {
 protected:
  /// One after the other, checked.
  void copy(int times, std::size_t bytes = 5000) {
    for (int i = 0; i < times; ++i) {
      std::vector<std::byte> from(bytes, static_cast<std::byte>(i + 1)), to(bytes + 1);
      hand_over.copy(to.data(), from.data(), bytes);
      ASSERT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
      ASSERT_EQ(to.back(), std::byte{0});
    }
  }
  ScriptedClock clock;
  HandOver hand_over{clock};
};

// Two copies by stores, two by streams: the better one of each counts.
TEST_F(HandOverTest, StreamsWhereStoresTakeManyTimesAsLong) {
  clock.durations = {19'000, 18'000, 9'000'000, 1'500};
  copy(4);
  EXPECT_TRUE(hand_over.streams());
}

TEST_F(HandOverTest, StoresWhereStreamsGainTooLittleForWhoReadsThem) {
  clock.durations = {9'000'000, 3'600, 1'400, 1'400};
  copy(4);
  EXPECT_FALSE(hand_over.streams());
}

TEST_F(HandOverTest, LooksAgainNowAndThen) {
  clock.durations = {19'000, 19'000, 1'500, 1'500, 900, 900, 1'500, 1'500};
  copy(100);
  EXPECT_TRUE(hand_over.streams());
  copy(1000);
  EXPECT_FALSE(hand_over.streams());
}

TEST_F(HandOverTest, SmallCopiesAreNotTimed) {
  clock.durations = {19'000, 19'000, 1'500, 1'500};
  copy(100, 1000);
  EXPECT_EQ(clock.durations.size(), 4u);
}

}  // namespace
}  // namespace lockstep::internal
