// Calls on windows: the stream runs the programs of registered memory, in calls and in graphs; who breaks the
// promise of same places is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/device/communicator/device_world.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::CallBuffers;
using internal::CollectiveCase;
using internal::DeviceArena;
using internal::testing::Enqueued;
using internal::testing::must;
using testing::DeviceRank;
using testing::run_on_devices;

const testing::DeviceRun kRun(testing::test_run("stream_sync"));
const char* const kMode = kRun.mode.c_str();
constexpr std::size_t kArena = 4 << 20;

/// Every collective that windows serve.
constexpr Collective kServed[] = {
    Collective::all_reduce, Collective::all_gather,   Collective::broadcast,       Collective::reduce_scatter,
    Collective::all_to_all, Collective::all_gather_v, Collective::reduce_scatter_v};

/// Copies and reductions between the buffers alone: nothing is staged.
bool touches_nothing_else(DeviceRank& self, const std::vector<std::pair<std::byte*, std::size_t>>& windows) {
  const auto inside = [&](const void* place) {
    const auto* const at = static_cast<const std::byte*>(place);
    return std::any_of(windows.begin(), windows.end(), [&](const auto& window) {
      return at >= window.first && at < window.first + window.second;
    });
  };
  bool all = true;
  for (const Enqueued& one : self.recorder.take()) {
    if (one.what != "copy" && one.what != "reduce") continue;
    // A peer's window lies elsewhere in this process: each step has one end at least in an own one.
    all &= std::any_of(one.sources.begin(), one.sources.end(), inside) ||
           std::any_of(one.destinations.begin(), one.destinations.end(), inside);
  }
  return all;
}

class DeviceWindows : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("LOCKSTEP_DEVICE_STAGING", "96K", 1); }
};

TEST_F(DeviceWindows, EveryCollectiveIsRightInCallsAndReplays) {
  const bool captures = testing::kernels_wait(kMode, 3);
  run_on_devices(3, kMode, [=](DeviceRank& self) {
    DeviceArena arena(kArena, self.device());
    self.communicator.register_window(arena.device(), kArena, true);
    internal::Backend& backend = *must(internal::device_backend());
    std::uint64_t turn = 0;
    for (const Collective collective : kServed) {
      // Blocks of different sizes lie at the same places where one buffer holds them all.
      const bool v = collective == Collective::all_gather_v || collective == Collective::reduce_scatter_v;
      for (const bool in_place : {true, false}) {
        if (v && !in_place) continue;
        for (const std::size_t count : {std::size_t{9'000}, std::size_t{40'001}}) {
          const CollectiveCase what{collective, DataType::f32, ReduceOp::sum, 3, 1, count, ++turn};
          for (const bool captured : {false, true}) {
            if (captured && !captures) continue;
            const CallBuffers buffers(what, self.rank(), in_place, arena.host());
            arena.upload(kArena, self.stream);
            static_cast<void>(self.recorder.take());
            if (captured) must(backend.begin_capture(self.stream));
            start_on_device(self.communicator, what, buffers, arena, self.stream);
            if (captured) {
              const auto graph = must(backend.end_capture(self.stream));
              must(backend.replay(graph, self.stream));
              must(backend.destroy_graph(graph));
            }
            EXPECT_TRUE(touches_nothing_else(self, {{arena.device(), kArena}})) << what.describe();
            arena.download(kArena, self.stream);
            self.synchronize();
            ASSERT_EQ(buffers.check_result(), "") << what.describe();
          }
        }
      }
    }
  });
}

/// A peer that read the input in its window would read it unscaled.
TEST_F(DeviceWindows, EachRanksFactorCounts) {
  run_on_devices(3, kMode, [](DeviceRank& self) {
    DeviceArena arena(kArena, self.device());
    self.communicator.register_window(arena.device(), kArena, true);
    for (const Collective collective :
         {Collective::all_reduce, Collective::reduce_scatter, Collective::reduce_scatter_v}) {
      for (const std::size_t count : {std::size_t{100}, std::size_t{40'001}}) {
        const CollectiveCase what{collective, DataType::f32, ReduceOp::premul_sum, 3, 1, count, count};
        const CallBuffers buffers(what, self.rank(), true, arena.host());
        arena.upload(kArena, self.stream);
        start_on_device(self.communicator, what, buffers, arena, self.stream);
        arena.download(kArena, self.stream);
        self.synchronize();
        EXPECT_EQ(buffers.check_result(), "") << what.describe();
      }
    }
  });
}

/// All name the same two places, of which the input counts for its root alone.
TEST_F(DeviceWindows, ABroadcastHasAnInputAndAnOutput) {
  run_on_devices(3, kMode, [](DeviceRank& self) {
    constexpr std::size_t kHalf = kArena / 2;
    DeviceArena arena(kArena, self.device());
    self.communicator.register_window(arena.device(), kArena, true);
    for (const std::size_t bytes : {std::size_t{20}, kHalf}) {
      std::fill(arena.host().begin(), arena.host().end(), static_cast<std::byte>(self.rank() + 1));
      arena.upload(kArena, self.stream);
      self.communicator.broadcast(arena.device(), arena.device() + kHalf, bytes, DataType::u8, 1,
                                  self.stream);
      arena.download(kArena, self.stream);
      self.synchronize();
      const auto output = arena.host().subspan(kHalf, bytes);
      EXPECT_EQ(std::count(output.begin(), output.end(), std::byte{2}), static_cast<std::ptrdiff_t>(bytes));
    }
  });
}

TEST_F(DeviceWindows, AnAllReduceTouchesEachByteOnce) {
  const bool take_turns = std::string_view(kMode) == "stream_sync" && testing::take_time_slices(2);
  run_on_devices(2, kMode, [=](DeviceRank& self) {
    constexpr std::size_t kSmall = 2, kLarge = 100'000;
    DeviceArena arena(kLarge * 4, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    // Staging a small one is quicker, but where every rank that has work costs a turn.
    for (const std::size_t count : {take_turns ? kSmall : kLarge, kLarge}) {
      static_cast<void>(self.recorder.take());
      self.all_reduce(arena, count);
      self.synchronize();
      testing::expect_one_reduction(self, count * 4, take_turns);
    }
  });
}

TEST_F(DeviceWindows, TakeTurnsWithPrivateMemoryAndPackets) {
  run_on_devices(3, kMode, [](DeviceRank& self) {
    constexpr std::size_t kCount = 30'000;
    DeviceArena window(kCount * 4, self.device()), plain(kCount * 4, self.device());
    self.communicator.register_window(window.device(), window.size(), true);
    for (DeviceArena* arena : {&window, &plain}) {
      std::fill_n(reinterpret_cast<std::uint32_t*>(arena->host().data()), kCount, 1u);
      arena->upload(arena->size(), self.stream);
    }
    constexpr int kRounds = 40;
    for (int i = 0; i < kRounds; ++i) {
      for (DeviceArena* arena : {&window, &plain}) {
        for (const std::size_t count : {kCount, std::size_t{7}})
          self.communicator.all_reduce(arena->device(), arena->device(), count, DataType::u32, ReduceOp::sum,
                                       self.stream);
      }
    }
    for (DeviceArena* arena : {&window, &plain}) arena->download(arena->size(), self.stream);
    self.synchronize();
    std::uint32_t few = 1, many = 1;
    for (int i = 0; i < kRounds; ++i) many *= 3, few *= 9;
    for (DeviceArena* arena : {&window, &plain}) {
      const auto* const values = reinterpret_cast<const std::uint32_t*>(arena->host().data());
      EXPECT_EQ(std::count(values, values + 7, few), 7);
      EXPECT_EQ(std::count(values + 7, values + kCount, many), static_cast<std::ptrdiff_t>(kCount - 7));
    }
    self.communicator.deregister(window.device());
    self.communicator.all_reduce(window.device(), window.device(), kCount, DataType::u32, ReduceOp::sum,
                                 self.stream);
    self.synchronize();
  });
}

/// As programs for NCCL do with a pool and its parts.
TEST_F(DeviceWindows, BuffersOverlapAndAreRegisteredAgain) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    constexpr std::size_t kBytes = 1 << 17, kHalf = kBytes / 2, kQuarter = kBytes / 4;
    DeviceArena arena(kBytes, self.device());
    std::byte* const base = arena.device();
    DeviceCommunicator& ranks = self.communicator;
    const auto has = [&](std::size_t from, std::size_t bytes) {
      return ranks.is_registered(base + from, bytes);
    };
    ranks.register_buffer(base, kHalf);
    ranks.register_buffer(base + kQuarter, kHalf);  // Over the end of the first.
    EXPECT_TRUE(has(0, kHalf) && has(kQuarter, kHalf));
    EXPECT_FALSE(has(0, kHalf + 1));
    ranks.register_window(base, kBytes, true);  // Around both.
    ranks.register_buffer(base + kHalf, 64);
    EXPECT_TRUE(has(0, kBytes));
    static_cast<void>(self.recorder.take());
    ranks.all_reduce(base, base, kBytes / 4, DataType::i32, ReduceOp::sum, self.stream);
    EXPECT_TRUE(touches_nothing_else(self, {{base, kBytes}}));
    ranks.register_window(base + kHalf, kQuarter, true);
    ranks.all_reduce(base, base, kBytes / 4, DataType::i32, ReduceOp::sum, self.stream);
    EXPECT_TRUE(touches_nothing_else(self, {{base, kBytes}}));
    self.synchronize();
    for (const std::size_t begin : {std::size_t{0}, kQuarter, kHalf, std::size_t{0}}) {
      ranks.deregister(base + begin);
      EXPECT_TRUE(has(0, kBytes)) << "as long as a part is registered";
    }
    EXPECT_THROW(ranks.deregister(base), Error);
    ranks.deregister(base + kHalf);
    EXPECT_FALSE(has(0, 1) || has(kHalf, 64));
  });
}

/// Open descriptors: those of memory, mappings and cards are among them.
std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

/// Of this rank's memory and its peers' on the host backend.
std::ptrdiff_t device_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("lockstep-device") != std::string::npos;
  return count;
}

/// On the backend of free_device, which keeps what a peer has mapped.
TEST_F(DeviceWindows, NothingIsLeftOfThoseThatWereDeregistered) {
  const auto body = [](DeviceRank& self) {
    constexpr int kRounds = 300;
    constexpr std::size_t kCount = 10'000;
    std::ptrdiff_t descriptors = 0, mappings = 0;
    for (int round = 0; round < kRounds; ++round) {
      DeviceArena arena(kCount * 4, self.device());
      self.communicator.register_window(arena.device(), arena.size(), true);
      EXPECT_TRUE(self.communicator.is_registered(arena.device(), arena.size()));
      if (round % 10 == 0) {
        self.communicator.all_reduce(arena.device(), arena.device(), kCount, DataType::u32, ReduceOp::sum,
                                     self.stream);
        self.synchronize();
      }
      self.communicator.deregister(arena.device());
      if (round != 10) continue;
      descriptors = open_descriptors();
      mappings = device_mappings();
    }
    // What this rank freed is gone when the peer has let go of it, and may be a round late.
    EXPECT_LE(open_descriptors(), descriptors + 6);
    EXPECT_LE(device_mappings(), mappings + 2);
  };
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place;
  internal::testing::run_forked(
      2, [&](int rank) { testing::run_rank(rank, 2, place.store(), body, *internal::device_backend()); });
}

/// All ranks add windows in the same order, while a newer one may begin before an older one or behind it.
TEST_F(DeviceWindows, OfThoseThatHoldABufferTheNewestCountsOnAllRanks) {
  std::byte mine[128], older[64], newer[128];
  internal::DeviceWindows windows;
  windows.add(mine + 16, 64, {mine + 16, older}, {});
  windows.add(mine, 128, {mine, newer}, {});
  internal::Call call;
  call.facts.collective = Collective::all_reduce;
  call.facts.type = DataType::u8;
  const auto find = [&](std::byte* at, std::size_t bytes) {
    call.input = call.output = at;
    call.input_elements = call.output_elements = bytes;
    return windows.find(call);
  };
  ASSERT_TRUE(find(mine + 20, 8));
  EXPECT_EQ(find(mine + 20, 8)->input[1], newer + 20);
  static_cast<void>(windows.remove(mine));
  ASSERT_TRUE(find(mine + 20, 8));
  EXPECT_EQ(find(mine + 20, 8)->output[1], older + 4);
  EXPECT_TRUE(find(mine + 20, 60));
  EXPECT_FALSE(find(mine + 20, 61)) << "its last byte is in no window";
  EXPECT_FALSE(find(mine + 15, 8));
}

TEST_F(DeviceWindows, OtherPlacesAreNamed) {
  internal::testing::Shared<internal::testing::Board> board;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    constexpr std::size_t kCount = 30'000;
    DeviceArena arena(2 * kCount * 4, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    std::byte* const at = arena.device() + (self.rank() == 0 ? 0 : kCount * 4);
    self.communicator.all_reduce(at, at, kCount, DataType::f32, ReduceOp::sum, self.stream);
    self.stream.synchronize();
    internal::testing::wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
    EXPECT_NE(self.communicator.error_text().find("different places of their windows"), std::string::npos)
        << self.communicator.error_text();
    board->meet(2);  // Who left before would be the reason that the other one gives.
  });
}

}  // namespace
}  // namespace lockstep
