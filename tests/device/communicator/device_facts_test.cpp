// The mode that follows from what the ranks told each other.
#include "collectives/device/device_facts.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "lib/device/host/host_backend.hpp"
#include "lib/device/sync/phase_body.hpp"

namespace lockstep::internal {
namespace {

std::vector<DeviceFacts> facts(int ranks) {
  std::vector<DeviceFacts> all(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    DeviceFacts& one = all[static_cast<std::size_t>(r)];
    one.uuid.back() = static_cast<std::uint8_t>(r);
    one.multiprocessors = 132;
    one.staging_bytes = (1 << 20) + static_cast<std::uint64_t>(ranks - r);
  }
  return all;
}

EngineGroup group(int ranks, bool several_hosts = false) {
  EngineGroup result;
  for (int r = 0; r < ranks; ++r) {
    Member member;
    member.rank = r;
    member.process = static_cast<std::uint64_t>(r) + 1;
    member.host_id = several_hosts ? std::to_string(r) : "one";
    result.members.push_back(member);
  }
  return result;
}

TEST(DeviceFacts, OneGpuWithoutMpsMeansThatStreamsWaitAndSaysWhy) {
  auto all = facts(3);
  all[2].uuid = all[1].uuid;
  auto decision = decide_mode(all, group(3));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->mode, DeviceMode::stream_sync);
  EXPECT_FALSE(decision->kernels_may_wait);
  EXPECT_EQ(decision->reason, "ranks 1 and 2 share a GPU without MPS");
  EXPECT_EQ(decision->staging_bytes, (std::uint64_t{1} << 20) + 1);  // The least.
  EXPECT_FALSE(decision->take_turns) << "rank 0 works beside them";
  all[0].uuid = all[1].uuid;
  EXPECT_TRUE(decide_mode(all, group(3))->take_turns);
  for (DeviceFacts& one : all) one.overlap = 1;
  EXPECT_FALSE(decide_mode(all, group(3))->take_turns);
}

TEST(DeviceFacts, OneGpuForThreadsMeansThatStreamsWaitAsForProcesses) {
  auto all = facts(3);
  for (DeviceFacts& one : all) one.uuid = all[0].uuid;
  EngineGroup ranks = group(3);
  ranks.members[2].process = ranks.members[1].process;
  auto decision = decide_mode(all, ranks);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->mode, DeviceMode::stream_sync);
  EXPECT_EQ(decision->reason, "ranks 0 and 1 share a GPU without MPS");
  ranks.members[0].process = ranks.members[1].process;
  decision = decide_mode(all, ranks);
  EXPECT_EQ(decision->mode, DeviceMode::stream_sync);
  EXPECT_EQ(decision->reason, "ranks 0 and 1 are threads of one process on one GPU");
}

TEST(DeviceFacts, AGpuForEachRankMeansDeviceSyncAndSaysThatItIsUnmeasured) {
  auto decision = decide_mode(facts(8), group(8));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->mode, DeviceMode::device_sync);
  EXPECT_EQ(decision->reason, "kernels of all ranks run at the same time; not measured yet");
  EXPECT_TRUE(decision->kernels_may_wait);
  EXPECT_FALSE(decision->devices_are_shared);
}

TEST(DeviceFacts, MpsMeansDeviceSyncWhereAllKernelsHaveRoom) {
  auto all = facts(3);
  for (DeviceFacts& one : all) one.overlap = 1;
  all[2].uuid = all[1].uuid;
  auto decision = decide_mode(all, group(3));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->mode, DeviceMode::device_sync) << decision->reason;
  EXPECT_TRUE(decision->devices_are_shared);
  EXPECT_EQ(decision->reason, "kernels of all ranks run at the same time");
  all[0].uuid = all[1].uuid;
  decision = decide_mode(all, group(3));
  EXPECT_EQ(decision->mode, DeviceMode::stream_sync) << "streams that wait need no room";
  EXPECT_FALSE(decision->kernels_may_wait) << "nor do messages wait in kernels there";
  EXPECT_NE(decision->reason.find("share a GPU by MPS"), std::string::npos) << decision->reason;
  for (DeviceFacts& one : all) one.wanted_mode = static_cast<int>(DeviceMode::stream_sync);
  EXPECT_TRUE(decide_mode(all, group(3))->kernels_may_wait) << "asked for, it is granted";
}

TEST(DeviceFacts, PacketKernelsOfRanksOnOneGpuHaveRoomSideBySide) {
  const auto blocks = [](const std::vector<DeviceFacts>& all) {
    return decide_mode(all, group(static_cast<int>(all.size())))->packet_blocks;
  };
  auto all = facts(8);
  EXPECT_EQ(blocks(all), sync::kMaxPacketBlocks);
  for (std::size_t r = 1; r < 6; ++r) all[r].uuid = all[0].uuid;
  EXPECT_EQ(blocks(all), 132 / 6) << "the same on all ranks";
  for (DeviceFacts& one : all) one.multiprocessors = 4;
  EXPECT_EQ(blocks(all), 1);
  for (DeviceFacts& one : all) one.is_host_backend = 1;
  EXPECT_EQ(blocks(all), sync::kMaxPacketBlocks) << "blocks are threads";
}

TEST(DeviceFacts, WhatKeepsStreamsFromWaitingMeansHostSyncAndIsSaid) {
  const auto reason = [](const std::vector<DeviceFacts>& all, const EngineGroup& ranks) {
    auto decision = decide_mode(all, ranks);
    EXPECT_EQ(decision->mode, DeviceMode::host_sync);
    return decision->reason;
  };
  auto all = facts(2);
  for (DeviceFacts& one : all) one.is_host_backend = 1;
  EXPECT_NE(reason(all, group(2)).find("the host backend"), std::string::npos);
  const int many = sync::kMaxPhaseRanks + 1;
  EXPECT_EQ(reason(facts(many), group(many)), "there are more than 128 ranks on a host");
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

std::vector<DeviceFacts> wish(std::vector<DeviceFacts> all, DeviceMode mode) {
  for (auto& one : all) one.wanted_mode = static_cast<int>(mode);
  return all;
}

TEST(DeviceFacts, KernelsMayWaitWhereTheyRunAtTheSameTime) {
  auto decision = decide_mode(wish(facts(2), DeviceMode::device_sync), group(2));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->mode, DeviceMode::device_sync);
  EXPECT_EQ(decision->reason, "as asked for");
  EXPECT_TRUE(decision->kernels_may_wait);
  auto shared = wish(facts(2), DeviceMode::stream_sync);
  shared[1].uuid = shared[0].uuid;
  decision = decide_mode(shared, group(2));
  ASSERT_TRUE(decision.ok());
  EXPECT_FALSE(decision->kernels_may_wait);
  EXPECT_EQ(decision->reason, "as asked for");
  for (auto& one : shared) one.wanted_mode = static_cast<int>(DeviceMode::device_sync);
  EXPECT_NE(decide_mode(shared, group(2))->reason.find("ranks 0 and 1 share a GPU without MPS: every wait"),
            std::string::npos);
  EngineGroup threads = group(2);
  threads.members[1].process = threads.members[0].process;
  EXPECT_TRUE(decide_mode(shared, threads)->kernels_may_wait);
}

TEST(DeviceFacts, MoreRanksThanKernelsServeAreRefused) {
  const int ranks = sync::kMaxPhaseRanks + 1;
  const auto decision = decide_mode(wish(facts(ranks), DeviceMode::device_sync), group(ranks));
  EXPECT_EQ(decision.status().code(), ErrorCode::not_supported);
  EXPECT_NE(decision.status().message().find("128 ranks"), std::string::npos);
}

TEST(DeviceFacts, SeveralHostsTakeTheModeThatFitsAll) {
  auto all = facts(4);
  EngineGroup ranks = group(4);
  for (std::size_t r : {2u, 3u}) ranks.members[r].host_id = "other";
  auto decision = decide_mode(all, ranks);
  ASSERT_TRUE(decision.ok());
  EXPECT_TRUE(decision->several_hosts);
  EXPECT_EQ(decision->mode, DeviceMode::device_sync);
  EXPECT_FALSE(decision->kernels_may_wait) << "no call is of kernels alone";
  all[3].uuid = all[2].uuid;
  decision = decide_mode(all, ranks);
  EXPECT_EQ(decision->mode, DeviceMode::stream_sync);
  EXPECT_EQ(decision->reason, "ranks 2 and 3 share a GPU without MPS");
  EXPECT_EQ(decide_mode(wish(all, DeviceMode::host_sync), ranks)->mode, DeviceMode::host_sync);
  auto granted = decide_mode(wish(all, DeviceMode::device_sync), ranks);
  EXPECT_NE(granted->reason.find("ranks 2 and 3 share"), std::string::npos) << granted->reason;
}

/// It is the ranks of a host that wait for one another.
TEST(DeviceFacts, ManyHostsMayHaveMoreRanksThanOneHost) {
  const int many = 2 * sync::kMaxPhaseRanks;
  EXPECT_EQ(decide_mode(facts(many), group(many, true))->mode, DeviceMode::device_sync);
  EXPECT_TRUE(decide_mode(wish(facts(many), DeviceMode::device_sync), group(many, true)).ok());
}

TEST(DeviceFacts, AMixOfBackendsIsRefused) {
  auto all = facts(2);
  all[1].is_host_backend = 1;
  EXPECT_EQ(decide_mode(all, group(2)).status().code(), ErrorCode::configuration);
}

TEST(DeviceFacts, BetweenHostsAllGoStraightOrNone) {
  auto all = facts(3);
  for (DeviceFacts& one : all) one.goes_straight = 1;
  EXPECT_TRUE(decide_mode(all, group(3, true))->straight);
  EXPECT_EQ(decide_mode(all, group(3, true))->mode, DeviceMode::host_sync) << "a thread's work";
  EXPECT_FALSE(decide_mode(wish(all, DeviceMode::stream_sync), group(3, true))->straight);
  EXPECT_FALSE(decide_mode(all, group(3))->straight);  // There is nothing between hosts.
  all[2].goes_straight = 0;
  EXPECT_FALSE(decide_mode(all, group(3, true))->straight);
}

TEST(DeviceFacts, StagingMemoryIsCutAtWholePages) {
  ::setenv("LOCKSTEP_DEVICE_STAGING", "100001", 1);
  HostBackend host;
  Result<Backend*> backend = &host;
  EXPECT_EQ(facts_of(backend, 0, {}).staging_bytes, 98'304u);
  ::unsetenv("LOCKSTEP_DEVICE_STAGING");
}

}  // namespace
}  // namespace lockstep::internal
