// Devices on several hosts: what goes which way, messages between hosts, and failures that the hosts tell one
// another; through pinned memory, and straight from device to device by UCX. What every collective gives is
// in device_matrix_test.cpp.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <regex>

#include "lib/base/float16.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::MemorySpace;
using internal::testing::run_forked;
using internal::testing::Shared;
using internal::testing::start_forked;
using internal::testing::wait_for;
using internal::testing::wait_until;
using testing::DeviceRank;
using testing::MeetingPlace;

const std::string kRun = testing::test_run("host_sync");  // A mode, or that of messages without staging.
const bool kStraight = kRun == "straight";
const char* const kMode = kStraight ? "host_sync" : kRun.c_str();
const char* const kTransports = kStraight ? "ucx" : "auto";
const char* const kWay = kStraight ? "from device to device by UCX" : "through pinned memory";

/// Two ranks on each of two hosts.
void run_on_hosts(const std::function<void(DeviceRank&)>& body) {
  testing::run_on_hosts(4, kMode, body, kTransports);
}

void fill(DeviceArena& arena, float value, Stream stream) {
  auto* const floats = reinterpret_cast<float*>(arena.host().data());
  std::fill(floats, floats + arena.size() / sizeof(float), value);
  arena.upload(arena.size(), stream);
}

float at(DeviceArena& arena, std::size_t index) {
  return reinterpret_cast<const float*>(arena.host().data())[index];
}

/// Bytes of the copies that the communicator enqueued between device and pinned memory.
struct Moved {
  std::size_t from_device = 0, to_device = 0, on_device = 0;
};
Moved moved(DeviceRank& self) {
  const auto space = [&](const void* pointer) { return self.recorder.locate(pointer).value().space; };
  Moved sum;
  for (const auto& one : self.recorder.take()) {
    if (one.what != "copy" && one.what != "reduce") continue;
    if (space(one.destinations.front()) == MemorySpace::pinned) {
      sum.from_device += one.bytes;
    } else if (space(one.sources.front()) == MemorySpace::pinned) {
      sum.to_device += one.bytes;
    } else {
      sum.on_device += one.bytes;
    }
  }
  return sum;
}

TEST(DeviceHosts, SayWhatTheyAre) {
  run_on_hosts([](DeviceRank& self) {
    const std::string text = self.communicator.describe();
    EXPECT_NE(text.find("2 hosts, 2 ranks on each, data pass " + std::string(kWay)), std::string::npos)
        << text;
    EXPECT_NE(text.find(kMode), std::string::npos) << text;
  });
}

/// The others would stage what it took straight from their devices.
TEST(DeviceHosts, OneRankThatStagesMakesAllStage) {
  testing::use_host_backend(kMode);
  const MeetingPlace place;
  run_forked(2, [&](int rank) {
    testing::live_on_host(rank);
    if (rank == 1) ::setenv("LOCKSTEP_DEVICE_STRAIGHT", "off", 1);
    DeviceRank self(place.join(rank, 2, kTransports));
    const std::string text = self.communicator.describe();
    EXPECT_NE(text.find("data pass through pinned memory"), std::string::npos) << text;
    DeviceArena arena(300'000, self.rank());
    fill(arena, 2, self.stream);
    self.communicator.all_reduce(arena.device(), arena.device(), arena.size() / sizeof(float), DataType::f32,
                                 ReduceOp::sum, self.stream);
    arena.download(arena.size(), self.stream);
    self.synchronize();
    EXPECT_EQ(moved(self).from_device, arena.size());
    EXPECT_EQ(at(arena, 74'999), 4.0f);
    self.communicator.finalize();
  });
}

TEST(DeviceHosts, OnlyARanksShareLeavesItsDevice) {
  run_on_hosts([](DeviceRank& self) {
    constexpr std::size_t kCount = 600'000;
    DeviceArena arena(kCount * sizeof(float), self.rank());
    self.communicator.register_buffer(arena.device(), arena.size());
    fill(arena, static_cast<float>(self.rank()), self.stream);
    self.synchronize();
    self.recorder.take();
    self.communicator.all_reduce(arena.device(), arena.device(), kCount, DataType::f32, ReduceOp::avg,
                                 self.stream);
    self.synchronize();
    const Moved bytes = moved(self);
    const std::size_t staged = kStraight ? 0 : arena.size() / 2;
    EXPECT_EQ(bytes.from_device, staged);
    EXPECT_EQ(bytes.to_device, staged);
    EXPECT_GE(bytes.on_device, arena.size() / 2);  // What the host's ranks added up among themselves.
    arena.download(arena.size(), self.stream);
    self.synchronize();
    EXPECT_EQ(at(arena, 0), 1.5f);
    EXPECT_EQ(at(arena, kCount - 1), 1.5f);
  });
}

/// A byte is read, reduced and given to the ranks of the host where it lies.
TEST(DeviceHosts, AWindowIsStagedForOtherHostsAlone) {
  if (kMode == std::string_view("host_sync")) GTEST_SKIP() << "there it is a registered buffer";
  run_on_hosts([](DeviceRank& self) {
    constexpr std::size_t kCount = 600'000;
    DeviceArena arena(kCount * sizeof(float), self.device());
    const auto all_reduce = [&] {
      fill(arena, static_cast<float>(self.rank()), self.stream);
      self.synchronize();
      self.recorder.take();
      self.all_reduce(arena, kCount);
      const Moved bytes = moved(self);
      arena.download(arena.size(), self.stream);
      self.synchronize();
      EXPECT_EQ(at(arena, 0), 6.0f);
      EXPECT_EQ(at(arena, kCount - 1), 6.0f);
      EXPECT_EQ(bytes.from_device, arena.size() / 2);
      EXPECT_EQ(bytes.to_device, arena.size() / 2);
      return bytes.on_device;
    };
    EXPECT_GT(all_reduce(), arena.size());
    self.communicator.register_window(arena.device(), arena.size(), true);
    EXPECT_EQ(all_reduce(), arena.size());  // A half is reduced, and the other is fetched.
  });
}

/// Its sum would be infinite: in calls whose ranks of a host work together, and in others.
TEST(DeviceHosts, AnAverageOfALargeNumberIsThatNumber) {
  run_on_hosts([](DeviceRank& self) {
    constexpr std::size_t kCount = 5'000;
    constexpr std::uint16_t kLarge = internal::F16::from_float(0x1p15f);
    DeviceArena arena(kCount * sizeof kLarge, self.device());
    const std::span numbers(reinterpret_cast<std::uint16_t*>(arena.host().data()), kCount);
    const auto expect_average = [&](const char* what) {
      arena.download(arena.size(), self.stream);
      self.synchronize();
      EXPECT_EQ(std::count(numbers.begin(), numbers.end(), kLarge), kCount) << what;
      std::fill(numbers.begin(), numbers.end(), std::uint16_t{0});
    };
    const auto upload = [&] {
      std::fill(numbers.begin(), numbers.end(), kLarge);
      arena.upload(arena.size(), self.stream);
    };
    upload();
    self.communicator.all_reduce(arena.device(), arena.device(), kCount, DataType::f16, ReduceOp::avg,
                                 self.stream);
    expect_average("all_reduce");
    upload();
    self.communicator.reduce(arena.device(), arena.device(), kCount, DataType::f16, ReduceOp::avg, 2,
                             self.stream);
    if (self.rank() == 2) expect_average("reduce");
  });
}

/// In calls whose ranks of a host work together, and in others.
TEST(DeviceHosts, AFactorOnTheDeviceIsThatOfTheStream) {
  run_on_hosts([](DeviceRank& self) {
    constexpr std::size_t kCount = 5'000;
    DeviceArena numbers(kCount * sizeof(float), self.device()), factor(sizeof(float), self.device());
    fill(factor, static_cast<float>(self.rank() + 2), self.stream);
    DeviceCallOptions options;
    options.device_scale = factor.device();
    options.scale = 100;
    fill(numbers, 1, self.stream);
    self.communicator.all_reduce(numbers.device(), numbers.device(), kCount, DataType::f32,
                                 ReduceOp::premul_sum, self.stream, options);
    numbers.download(numbers.size(), self.stream);
    self.synchronize();
    EXPECT_EQ(at(numbers, 0), 2 + 3 + 4 + 5);
    EXPECT_EQ(at(numbers, kCount - 1), 2 + 3 + 4 + 5);
    fill(numbers, 1, self.stream);
    self.communicator.reduce(numbers.device(), numbers.device(), kCount, DataType::f32, ReduceOp::premul_sum,
                             2, self.stream, options);
    numbers.download(numbers.size(), self.stream);
    self.synchronize();
    if (self.rank() == 2) {
      EXPECT_EQ(at(numbers, kCount - 1), 2 + 3 + 4 + 5);
    }
  });
}

TEST(DeviceHosts, MessagesOfAnySizeGoRound) {
  ::setenv("LOCKSTEP_DEVICE_STAGING", "128K", 1);  // Most messages take several slots.
  run_on_hosts([](DeviceRank& self) {
    constexpr std::size_t kMost = 300'000;
    DeviceArena mine(kMost, self.rank()), theirs(kMost, self.rank());
    const int right = (self.rank() + 1) % 4, left = (self.rank() + 3) % 4;
    std::size_t sent_away = 0;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, kMost}) {
      for (std::size_t i = 0; i < bytes; ++i)
        mine.host()[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(self.rank())) % 251);
      mine.upload(bytes, self.stream);
      DeviceBatch batch = self.communicator.batch();
      batch.send(mine.device(), bytes, DataType::u8, right, self.stream);
      batch.recv(theirs.device(), bytes, DataType::u8, left, self.stream);
      batch.submit();
      theirs.download(bytes, self.stream);
      self.synchronize();
      if (right / 2 != self.rank() / 2) sent_away += bytes;
      for (std::size_t i = 0; i < bytes; ++i) {
        ASSERT_EQ(theirs.host()[i], static_cast<std::byte>((i * 7 + static_cast<std::size_t>(left)) % 251))
            << "byte " << i << " of " << bytes;
      }
    }
    const bool by_stream = !kStraight && kMode != std::string_view("device_sync");  // Else by the courier.
    EXPECT_EQ(moved(self).from_device, by_stream ? sent_away : 0);
  });
  ::unsetenv("LOCKSTEP_DEVICE_STAGING");
}

TEST(DeviceHosts, ASmallSendEndsWithoutItsReceiver) {
  run_on_hosts([](DeviceRank& self) {
    DeviceArena arena(4096, self.rank());
    fill(arena, static_cast<float>(self.rank()), self.stream);
    if (self.rank() == 0) self.communicator.send(arena.device(), 4096, DataType::u8, 2, self.stream);
    self.synchronize();
    self.host.barrier();
    if (self.rank() != 2) return;
    self.communicator.recv(arena.device(), 4096, DataType::u8, 0, self.stream);
    arena.download(arena.size(), self.stream);
    self.synchronize();
    EXPECT_EQ(at(arena, 1023), 0.0f);
  });
}

TEST(DeviceHosts, DifferentCallsAreNamedInHostSyncBeforeAnythingIsWritten) {
  run_on_hosts([](DeviceRank& self) {
    DeviceArena arena(4096, self.rank());
    fill(arena, 7, self.stream);
    const std::size_t count = self.rank() == 3 ? 100 : 200;
    self.communicator.all_reduce(arena.device(), arena.device(), count, DataType::f32, ReduceOp::sum,
                                 self.stream);
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
    EXPECT_NE(self.communicator.error_text().find("f32 x 100"), std::string::npos)
        << self.communicator.error_text();
    arena.download(arena.size(), self.stream);
    self.stream.synchronize();
    if (kMode != std::string_view("host_sync")) return;  // The stream was under way.
    EXPECT_EQ(at(arena, 0), 7.0f);
    EXPECT_EQ(at(arena, 99), 7.0f);
  });
}

/// Of which a rank has no part but to wait.
TEST(DeviceHosts, ABarrierHoldsAStreamUntilAllHaveCome) {
  Shared<std::atomic<int>> called, come;
  run_on_hosts([&](DeviceRank& self) {
    if (self.rank() == 3) {
      wait_until([&] { return called->load() == 3; });
      internal::sleep_for(std::chrono::milliseconds(50));  // For whoever would not wait.
      come->store(1);
    }
    self.communicator.barrier(self.stream);
    called->fetch_add(1);
    self.synchronize();
    EXPECT_EQ(come->load(), 1);
  });
}

/// It begins when the stream has come to the call.
TEST(DeviceHosts, ADeadlineIsOfTheCallAndNotOfWhatStandsBeforeIt) {
  run_on_hosts([](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    auto* const word = static_cast<std::uint32_t*>(self.recorder.allocate_pinned(4).value());
    self.recorder.wait_value(word, 1, self.stream).throw_if_error();
    DeviceCallOptions options;
    options.timeout = std::chrono::seconds(4);
    self.all_reduce(arena, 100, options);
    internal::sleep_for(std::chrono::seconds(5));
    std::atomic_ref(*word).store(1);
    self.synchronize();
    self.recorder.free_pinned(word).throw_if_error();
  });
}

/// That rank, by who is beside it and finds out first, or one that waits for it.
TEST(DeviceHosts, ADeadlineNamesWhoIsWaitedFor) {
  run_on_hosts([](DeviceRank& self) {
    DeviceArena arena(4096, self.rank());
    DeviceCallOptions soon;
    soon.timeout = std::chrono::milliseconds(300);
    if (self.rank() != 3) self.all_reduce(arena, 100, soon);
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
    const std::regex named("waits for rank [0-3] |rank 3 \\([^)]*\\) has not made it");
    EXPECT_TRUE(std::regex_search(self.communicator.error_text(), named)) << self.communicator.error_text();
  });
}

/// A rank's streams have gone on; its calls are carried in their order all the same.
TEST(DeviceHosts, CallsOnSeveralStreamsKeepTheirOrder) {
  run_on_hosts([](DeviceRank& self) {
    constexpr std::size_t kCount = 1000;
    DeviceArena arena(kCount * sizeof(float), self.device());
    internal::TestStream other(self.device());
    fill(arena, 1, self.stream);
    self.stream.synchronize();
    for (int turn = 0; turn < 6; ++turn)
      self.communicator.all_reduce(arena.device(), arena.device(), kCount, DataType::f32, ReduceOp::sum,
                                   turn % 2 == 0 ? self.stream : other);
    other.synchronize();
    arena.download(arena.size(), self.stream);
    self.synchronize();
    EXPECT_EQ(at(arena, 0), 4096.0f);
    EXPECT_EQ(at(arena, kCount - 1), 4096.0f);
  });
}

/// Rank 3, on the second host, is killed in the midst of operations.
TEST(DeviceHosts, AKilledProcessIsNamedOnAllHosts) {
  testing::use_host_backend(kMode);
  const MeetingPlace place;
  struct Board {
    std::array<std::atomic<int>, 4> running{};
    std::atomic<int> named{0};
  };
  Shared<Board> board;
  auto children = start_forked(4, [&](int rank) {
    testing::live_on_host(rank / 2);
    DeviceRank self(place.join(rank, 4, kTransports));
    DeviceArena arena(1 << 20, rank);
    try {
      while (true) {
        for (int ahead = 0; ahead < 3; ++ahead) {
          self.communicator.all_reduce(arena.device(), arena.device(), (1 << 20) / sizeof(float),
                                       DataType::f32, ReduceOp::sum, self.stream);
        }
        self.synchronize();
        board->running[static_cast<std::size_t>(rank)].fetch_add(1);
      }
    } catch (const Error& error) {
      self.stream.synchronize();  // It drains.
      const std::string text = self.communicator.error_text();
      if (self.communicator.state() == ErrorCode::peer_lost && text.find("rank 3") != std::string::npos) {
        board->named.fetch_add(1);
      } else {
        ADD_FAILURE() << "rank " << rank << ": " << text;
      }
    }
  });
  wait_until([&] {
    return std::all_of(board->running.begin(), board->running.end(), [](auto& n) { return n.load() > 1; });
  });
  ::kill(children[3], SIGKILL);
  for (std::size_t rank = 0; rank < 3; ++rank) wait_for(children[rank]);
  EXPECT_EQ(board->named.load(), 3);
}

}  // namespace
}  // namespace lockstep
