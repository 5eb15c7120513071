// A program that blocks inside the driver right behind a call: the thread that has a part in the call needs
// no driver for it, so the program goes on. The host backend counts where others wait for such a program.
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "lib/device/host/host_backend.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/support/device_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::testing::must;
using testing::backend;
using testing::DeviceRank;
using testing::run_on_devices;
using testing::run_on_hosts;

const char* const kMode = testing::test_run("device_sync");
bool mode_is(const char* name) { return std::string_view(kMode) == name; }

void expect_no_hangs() { EXPECT_EQ(internal::HostBackend::hangs(), 0); }

/// As PyTorch's DDP copies what it gathered, and `.cpu()` a result: the driver keeps every other thread out
/// until the copy is done.
TEST(DeviceBlocking, ACopyKeepsNoCollectiveBetweenHostsFromItsEnd) {
  ::setenv("LOCKSTEP_DEVICE_STAGING", "64K", 1);  // Many columns.
  for (const int world : {2, 4}) {
    run_on_hosts(world, kMode, [](DeviceRank& self) {
      DeviceArena arena(1 << 19, self.device());
      std::vector<float> values(arena.size() / sizeof(float), 1);
      for (int turn = 0; turn < 20; ++turn) {
        must(backend().copy(arena.device(), values.data(), arena.size(), self.stream));
        self.all_reduce(arena, values.size());
        must(backend().copy(values.data(), arena.device(), arena.size(), self.stream));
        const auto sum = static_cast<float>(self.size());
        ASSERT_EQ(std::count(values.begin(), values.end(), sum), static_cast<std::ptrdiff_t>(values.size()));
        std::fill(values.begin(), values.end(), 1.0f);
      }
      expect_no_hangs();
    });
  }
  ::unsetenv("LOCKSTEP_DEVICE_STAGING");
}

TEST(DeviceBlocking, ACopyKeepsNoMessageBetweenHostsFromItsEnd) {
  if (!mode_is("device_sync")) GTEST_SKIP() << "elsewhere a thread needs the driver";
  ::setenv("LOCKSTEP_DEVICE_STAGING", "128K", 1);  // Many chunks.
  for (const int world : {2, 4}) {
    run_on_hosts(world, kMode, [](DeviceRank& self) {
      DeviceArena arena(1 << 19, self.device());
      std::vector<std::int32_t> values(arena.size() / 2 / sizeof(std::int32_t));
      const std::size_t half = arena.size() / 2;
      const int right = (self.rank() + 1) % self.size(), left = (self.rank() + self.size() - 1) % self.size();
      for (int turn = 0; turn < 10; ++turn) {
        std::fill(values.begin(), values.end(), self.rank() + turn);
        must(backend().copy(arena.device(), values.data(), half, self.stream));
        DeviceBatch batch = self.communicator.batch();
        batch.send(arena.device(), half, DataType::u8, right, self.stream);
        batch.recv(arena.device() + half, half, DataType::u8, left, self.stream);
        batch.submit();
        must(backend().copy(values.data(), arena.device() + half, half, self.stream));
        ASSERT_EQ(std::count(values.begin(), values.end(), left + turn),
                  static_cast<std::ptrdiff_t>(values.size()));
      }
      expect_no_hangs();
    });
  }
  ::unsetenv("LOCKSTEP_DEVICE_STAGING");
}

/// More than a kernel with messages serves.
TEST(DeviceBlocking, ACopyKeepsNoMessageOfManyRanksFromItsEnd) {
  if (!mode_is("device_sync")) GTEST_SKIP() << "where kernels wait, and once is enough";
  constexpr int kRanks = internal::sync::kMaxPacketRanks + 1;
  run_on_devices(kRanks, kMode, [](DeviceRank& self) {
    DeviceArena arena(128, self.device());
    const std::byte mine{static_cast<unsigned char>(self.rank())};
    std::byte theirs{0xff};
    const int right = (self.rank() + 1) % kRanks, left = (self.rank() + kRanks - 1) % kRanks;
    self.all_reduce(arena, 16);  // The thread must not be in the driver for what stands before, either.
    must(backend().copy(arena.device(), &mine, 1, self.stream));
    DeviceBatch batch = self.communicator.batch();
    batch.send(arena.device(), 1, DataType::u8, right, self.stream);
    batch.recv(arena.device() + 64, 1, DataType::u8, left, self.stream);
    batch.submit();
    must(backend().copy(&theirs, arena.device() + 64, 1, self.stream));
    EXPECT_EQ(theirs, static_cast<std::byte>(left));
    expect_no_hangs();
    self.synchronize();
  });
}

}  // namespace
}  // namespace lockstep
