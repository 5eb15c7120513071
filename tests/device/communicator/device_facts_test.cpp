// The mode that follows from what the ranks told each other.
#include "collectives/device/device_facts.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace lockstep::internal {
namespace {

std::vector<DeviceFacts> facts(int ranks) {
  std::vector<DeviceFacts> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    DeviceFacts& one = all[static_cast<std::size_t>(r)];
    one.uuid.back() = static_cast<std::uint8_t>(r);
    one.device = r;
    one.stream_memory_operations = 1;
    one.staging_bytes = (1 << 20) + static_cast<std::uint64_t>(ranks - r);
  }
  return all;
}

EngineGroup group(int ranks, bool several_hosts = false) {
  EngineGroup result;
  for (int r = 0; r < ranks; ++r) {
    Member member;
    member.rank = r;
    member.host_id = several_hosts ? std::to_string(r) : "one";
    result.members.push_back(member);
  }
  return result;
}

TEST(DeviceFacts, OneGpuWithoutMpsMeansHostSyncAndSaysWhy) {
  auto all = facts(3);
  all[2].uuid = all[1].uuid;
  auto decision = decide_mode(all, group(3));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->mode, DeviceMode::host_sync);
  EXPECT_EQ(decision->reason, "ranks 1 and 2 share a GPU without MPS");
  EXPECT_EQ(decision->staging_bytes, (std::uint64_t{1} << 20) + 1);  // The least.
}

TEST(DeviceFacts, ARanksFaultIsEverybodysErrorAndNamesIt) {
  auto all = facts(3);
  std::strcpy(all[1].fault, "no CUDA device (libcuda.so.1 is not there)");
  const auto decision = decide_mode(all, group(3));
  EXPECT_EQ(decision.status().code(), ErrorCode::not_supported);
  EXPECT_EQ(decision.status().message(), "rank 1: no CUDA device (libcuda.so.1 is not there)");
  EXPECT_EQ(decision.status().culprit(), 1);
}

TEST(DeviceFacts, DifferentWishesNameBoth) {
  auto all = facts(2);
  all[1].wanted_mode = static_cast<int>(DeviceMode::host_sync);
  const auto decision = decide_mode(all, group(2));
  EXPECT_EQ(decision.status().code(), ErrorCode::configuration);
  EXPECT_NE(decision.status().message().find("rank 0 wants device mode none, rank 1 wants host_sync"),
            std::string::npos)
      << decision.status().message();
}

TEST(DeviceFacts, AModeThatIsNotHereIsRefusedByName) {
  auto all = facts(2);
  for (auto& one : all) one.wanted_mode = static_cast<int>(DeviceMode::device_sync);
  const auto decision = decide_mode(all, group(2));
  EXPECT_EQ(decision.status().code(), ErrorCode::not_supported);
  EXPECT_NE(decision.status().message().find("device_sync"), std::string::npos);
}

TEST(DeviceFacts, SeveralHostsAreRefused) {
  const auto decision = decide_mode(facts(2), group(2, true));
  EXPECT_EQ(decision.status().code(), ErrorCode::not_supported);
  EXPECT_NE(decision.status().message().find("several hosts"), std::string::npos);
}

TEST(DeviceFacts, AMixOfBackendsIsRefused) {
  auto all = facts(2);
  all[1].is_host_backend = 1;
  EXPECT_EQ(decide_mode(all, group(2)).status().code(), ErrorCode::configuration);
}

}  // namespace
}  // namespace lockstep::internal
