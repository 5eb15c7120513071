// Many operations, after which nothing is left behind.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <random>

#include "tests/device/communicator/device_world.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::CallBuffers;
using internal::CollectiveCase;
using internal::DeviceArena;
using testing::DeviceRank;
using testing::run_on_devices;

const char* const kMode = testing::test_run("stream_sync");

std::size_t open_descriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

std::size_t resident_kib() {
  std::size_t total = 0, resident = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  EXPECT_EQ(std::fscanf(file, "%zu %zu", &total, &resident), 2);
  std::fclose(file);
  return resident * 4;
}

TEST(DeviceOperations, TenThousandMixedOnesLeaveNothingBehind) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 18, self.device());
    std::mt19937 shared(5);
    std::size_t descriptors = 0;
    [[maybe_unused]] std::size_t memory = 0;
    for (int i = 0; i < 10'000; ++i) {
      const CollectiveCase what{static_cast<Collective>(shared() % kCollectiveCount),
                                shared() % 2 == 0 ? DataType::f32 : DataType::i64,
                                ReduceOp::sum,
                                2,
                                static_cast<int>(shared() % 2),
                                shared() % 500,
                                7};
      const CallBuffers buffers(what, self.rank(), false, arena.host());
      if (i % 100 == 50) self.communicator.register_buffer(arena.device(), arena.size());
      if (i % 100 == 0) arena.upload(arena.size(), self.stream);
      start_on_device(self.communicator, what, buffers, arena, self.stream);
      if (i % 100 == 99) {
        self.synchronize();
        self.communicator.deregister(arena.device());
        static_cast<void>(self.recorder.take());
      }
      if (i == 2'000) {
        descriptors = open_descriptors();
        memory = resident_kib();
      }
    }
    self.synchronize();
    EXPECT_LE(open_descriptors(), descriptors + 4);
#if !defined(__SANITIZE_ADDRESS__)  // That keeps what was freed for a while, to tell who still uses it.
    EXPECT_LE(resident_kib(), memory + 4096);
#endif
  });
}

}  // namespace
}  // namespace lockstep
