// Mode device_sync: which kernels a call takes, and that every way is right at its sizes.
#include <gtest/gtest.h>

#include "collectives/device/packet_plan.hpp"
#include "tests/device/communicator/device_world.hpp"

namespace lockstep {
namespace {

using internal::CallBuffers;
using internal::CollectiveCase;
using internal::DeviceArena;
using internal::testing::Enqueued;
using testing::DeviceRank;
using testing::run_on_devices;

struct Kernels {
  int packets = 0, phases = 0, others = 0;
};

Kernels kernels(DeviceRank& self) {
  Kernels found;
  for (const Enqueued& one : self.recorder.take()) {
    if (one.what == "packets") ++found.packets;
    if (one.what == "phase") ++found.phases;
    if (one.what == "copy" || one.what == "reduce") ++found.others;
    EXPECT_NE(one.what, "wait");  // No stream waits.
  }
  return found;
}

TEST(DeviceSync, ASmallCallIsOneKernelAndALargeOneAProgram) {
  run_on_devices(2, "device_sync", [](DeviceRank& self) {
    DeviceArena arena(4 << 20, self.device());
    const auto all_reduce = [&](std::size_t bytes) {
      static_cast<void>(self.recorder.take());
      self.communicator.all_reduce(arena.device(), arena.device(), bytes, DataType::u8, ReduceOp::bor,
                                   self.stream);
      return kernels(self);
    };
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{64} << 10, std::size_t{256} << 10}) {
      const Kernels small = all_reduce(bytes);
      EXPECT_EQ(small.packets, 1) << bytes;
      EXPECT_EQ(small.phases + small.others, 0) << bytes;
    }
    const Kernels large = all_reduce(4 << 20);
    EXPECT_EQ(large.packets, 0);
    EXPECT_GT(large.phases, 1);
    EXPECT_GT(large.others, 1);
    self.synchronize();
  });
}

/// With the staging memory that a program has: grids of many blocks, one-shot, two-shot and programs.
TEST(DeviceSync, EveryWayIsRightAtItsSizes) {
  run_on_devices(3, "device_sync", [](DeviceRank& self) {
    constexpr std::size_t kMost = std::size_t{12} << 20;
    DeviceArena arena(kMost, self.device());
    std::uint64_t turn = 0;
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter, Collective::all_gather,
          Collective::broadcast, Collective::all_to_all, Collective::scatter, Collective::gather}) {
      for (const std::size_t count : {std::size_t{5'000}, std::size_t{16'384}, std::size_t{16'385},
                                      std::size_t{150'001}, std::size_t{270'001}}) {
        const CollectiveCase what{collective, DataType::f32, ReduceOp::sum, 3, 1, count, ++turn};
        ASSERT_LE(CallBuffers::bytes_needed(what), kMost);
        const CallBuffers buffers(what, self.rank(), turn % 2 == 0, arena.host());
        arena.upload(kMost, self.stream);
        start_on_device(self.communicator, what, buffers, arena, self.stream);
        arena.download(kMost, self.stream);
        self.synchronize();
        ASSERT_EQ(buffers.check_result(), "") << what.describe();
      }
    }
  });
}

/// A phase for each step round the ring, and one behind the call.
TEST(DeviceSync, LargeSumsGoRoundARing) {
  constexpr int kRanks = 3;
  run_on_devices(kRanks, "device_sync", [](DeviceRank& self) {
    DeviceArena arena(8 << 20, self.device());
    const auto phases = [&](std::size_t bytes, DataType type) {
      static_cast<void>(self.recorder.take());
      self.communicator.all_reduce(arena.device(), arena.device(), bytes / size_of(type), type, ReduceOp::sum,
                                   self.stream);
      return kernels(self).phases;
    };
    EXPECT_EQ(phases(8 << 20, DataType::f32), 2 * (kRanks - 1) + 1);
    EXPECT_EQ(phases(8 << 20, DataType::bf16), 3);  // Two shots: rounded once.
    EXPECT_EQ(phases(4 << 20, DataType::f32), 3);
    self.synchronize();
  });
}

/// Forced: of every size, in one block and in many, in place and not.
TEST(DeviceSync, TheRingIsRight) {
  ::setenv("LOCKSTEP_ALGORITHMS", "all_reduce:*=pull_ring", 1);
  ::setenv("LOCKSTEP_DEVICE_STAGING", "1M", 1);
  for (const int ranks : {2, 3, 5}) {
    run_on_devices(ranks, "device_sync", [&](DeviceRank& self) {
      constexpr std::size_t kMost = std::size_t{12} << 20;
      DeviceArena arena(kMost, self.device());
      std::uint64_t turn = 0;
      for (const std::size_t count : {0, 1, 4, 63, 5'000, 150'001, 700'003}) {
        for (const auto& [type, op] :
             {std::pair{DataType::f32, ReduceOp::sum}, std::pair{DataType::i32, ReduceOp::max},
              std::pair{DataType::bf16, ReduceOp::avg}, std::pair{DataType::f64, ReduceOp::avg}}) {
          const CollectiveCase what{Collective::all_reduce, type, op, ranks, 0, count, ++turn};
          ASSERT_LE(CallBuffers::bytes_needed(what), kMost);
          const CallBuffers buffers(what, self.rank(), turn % 2 == 0, arena.host());
          arena.upload(kMost, self.stream);
          start_on_device(self.communicator, what, buffers, arena, self.stream);
          EXPECT_EQ(kernels(self).packets, 0);
          arena.download(kMost, self.stream);
          self.synchronize();
          ASSERT_EQ(buffers.check_result(), "") << what.describe();
        }
      }
    });
  }
  ::unsetenv("LOCKSTEP_ALGORITHMS");
  ::unsetenv("LOCKSTEP_DEVICE_STAGING");
}

/// A root learns of its receivers by their tokens alone.
TEST(DeviceSync, ARootMayNotRunAwayFromItsReceivers) {
  run_on_devices(3, "device_sync", [](DeviceRank& self) {
    constexpr int kRounds = 300;
    DeviceArena arena(kRounds * sizeof(std::uint32_t), self.device()), source(64, self.device());
    auto* const value = reinterpret_cast<std::uint32_t*>(source.host().data());
    for (int i = 0; i < kRounds; ++i) {
      if (self.rank() == 2 && i % 50 == 10) internal::sleep_for(std::chrono::milliseconds(2));
      if (self.rank() == 0) {
        *value = static_cast<std::uint32_t>(i + 1);
        source.upload(4, self.stream);
        self.stream.synchronize();
      }
      auto* const to = arena.device() + static_cast<std::size_t>(i) * 4;
      self.communicator.broadcast(source.device(), to, 1, DataType::u32, 0, self.stream);
    }
    arena.download(arena.size(), self.stream);
    self.synchronize();
    const auto* const values = reinterpret_cast<const std::uint32_t*>(arena.host().data());
    for (int i = 0; i < kRounds; ++i) ASSERT_EQ(values[i], static_cast<std::uint32_t>(i + 1));
  });
}

/// More ranks than packets serve: everything is programs and phases.
TEST(DeviceSync, ManyRanksHaveProgramsOnly) {
  const int ranks = internal::sync::kMaxPacketRanks + 1;
  EXPECT_EQ(internal::inbox_share(std::size_t{64} << 20, ranks).bytes, 0u);
  internal::Shape shape;
  shape.world = ranks;
  shape.count = 1;
  EXPECT_FALSE(internal::plan_packets({.collective = Collective::all_reduce}, shape, 1 << 20).has_value());
  shape.world = ranks - 1;
  EXPECT_TRUE(internal::plan_packets({.collective = Collective::all_reduce}, shape, 1 << 20).has_value());
  shape.count = 60'000;
  EXPECT_GT(internal::plan_packets({.collective = Collective::all_reduce}, shape, 1 << 20)->blocks, 3);
  EXPECT_EQ(internal::plan_packets({.collective = Collective::all_reduce}, shape, 1 << 20, 3)->blocks, 3);
}

}  // namespace
}  // namespace lockstep
