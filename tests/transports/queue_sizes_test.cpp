// What a device's queues hold is respected by the library itself: soft devices take more and fail later.
#include "transports/verbs/queue_sizes.hpp"

#include <gtest/gtest.h>

#include "lib/base/config.hpp"
#include "tests/support/scoped_variable.hpp"
#include "transports/fabric/limits.hpp"
#include "transports/verbs/limits.hpp"

namespace lockstep::internal {
namespace {

DeviceLimits large_device() { return {1 << 20, 1 << 20, 1 << 20, 1 << 20, 1ull << 31}; }

TEST(QueueSizes, CoverAllThatPeersMaySendUnasked) {
  const auto sizes = queue_sizes(5, large_device());
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ(sizes.value().receives, 4 * kChannels * (kLinkSlots + kLandings));
  EXPECT_EQ(sizes.value().completions, sizes.value().receives + 4 * kSendDepth);
  EXPECT_EQ(sizes.value().sends, kSendDepth);
}

TEST(AcknowledgementTimeout, IsWhatADeviceCanBeTold) {
  EXPECT_EQ(acknowledgement_timeout(), 16);
  for (const char* told : {"1", "31"}) {
    const testing::ScopedVariable set("LOCKSTEP_VERBS_TIMEOUT", told);
    EXPECT_TRUE(check_environment().ok());
    EXPECT_EQ(std::to_string(acknowledgement_timeout()), told);
  }
  for (const char* never : {"0", "32", "40", "-1"}) {
    const testing::ScopedVariable set("LOCKSTEP_VERBS_TIMEOUT", never);
    EXPECT_EQ(check_environment().code(), ErrorCode::configuration) << never;
  }
}

TEST(QueueSizes, AWriteIsNoLargerThanTheDevicesMessages) {
  DeviceLimits device = large_device();
  EXPECT_EQ(queue_sizes(2, device).value().write_bytes, kWriteBytes);
  device.message_bytes = 64 << 10;
  EXPECT_EQ(queue_sizes(2, device).value().write_bytes, 64u << 10);
}

TEST(QueueSizes, EachLimitThatIsTooSmallIsNamed) {
  struct Case {
    std::uint64_t DeviceLimits::*limit;
    const char* name;
  };
  for (const Case& c : {Case{&DeviceLimits::work_requests, "send requests"},
                        {&DeviceLimits::shared_receives, "receives"},
                        {&DeviceLimits::completions, "completion queue"},
                        {&DeviceLimits::queue_pairs, "queue pairs"},
                        {&DeviceLimits::message_bytes, "bytes in a message"}}) {
    DeviceLimits device = large_device();
    device.*c.limit = 2;
    const auto sizes = queue_sizes(8, device);
    ASSERT_FALSE(sizes.ok()) << c.name;
    EXPECT_EQ(sizes.status().code(), ErrorCode::configuration);
    EXPECT_NE(sizes.status().message().find(c.name), std::string::npos) << sizes.status().message();
  }
}

TEST(SendBudget, NeverHoldsMoreThanTheQueueAndAlwaysHasACompletionToWaitFor) {
  for (std::uint32_t wanted_every = 1; wanted_every < 40; ++wanted_every) {
    SendBudget budget(kSendDepth);
    std::uint32_t asked = 0, posted = 0, retired = 0;
    while (posted < 10 * kSendDepth) {
      while (budget.room()) asked += budget.post(++posted % wanted_every == 0);
      ASSERT_EQ(budget.under_way(), kSendDepth);
      ASSERT_GT(asked, 0u) << "a full queue without a completion under way is full for ever";
      const std::uint32_t one = budget.complete();
      --asked;
      ASSERT_GT(one, 0u);
      ASSERT_LE(one, kSignalEvery);
      retired += one;
      ASSERT_EQ(posted - retired, budget.under_way());
    }
  }
}

TEST(SendBudget, ASilentRequestIsRetiredByTheNextThatAsks) {
  SendBudget budget(kSendDepth);
  EXPECT_FALSE(budget.post(false));
  EXPECT_FALSE(budget.post(false));
  EXPECT_TRUE(budget.post(true));
  EXPECT_EQ(budget.complete(), 3u);
  EXPECT_EQ(budget.under_way(), 0u);
  EXPECT_EQ(budget.complete(), 0u) << "nothing asked";
}

}  // namespace
}  // namespace lockstep::internal
