// Sends and receives between devices: order, sizes above and below the slots, lent buffers, batches, and the
// errors that name both sides.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using testing::DeviceRank;
using testing::run_on_devices;
using testing::thrown_by;

const testing::DeviceRun kRun(testing::test_run("stream_sync"));
const char* const kMode = kRun.mode.c_str();

void fill(DeviceArena& arena, std::size_t bytes, int seed, Stream stream) {
  for (std::size_t i = 0; i < bytes; ++i)
    arena.host()[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed) * 31) % 251);
  arena.upload(bytes, stream);
}

/// Index of the first byte that is not what rank `seed` filled in, or `bytes`.
std::size_t first_wrong(DeviceArena& arena, std::size_t bytes, int seed) {
  std::size_t i = 0;
  while (i < bytes &&
         arena.host()[i] == static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed) * 31) % 251))
    ++i;
  return i;
}

class DeviceMessages : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Memory, DeviceMessages, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "registered" : "private"; });

TEST_P(DeviceMessages, GoRoundARing) {
  ::setenv("LOCKSTEP_DEVICE_STAGING", "64K", 1);  // Slots of 5 KiB: most messages take several.
  run_on_devices(3, kMode, [registered = GetParam()](DeviceRank& self) {
    constexpr std::size_t kMost = 300'000;
    DeviceArena mine(kMost, self.device()), theirs(kMost, self.device());
    if (registered) self.communicator.register_buffer(mine.device(), kMost);
    const int right = (self.rank() + 1) % 3, left = (self.rank() + 2) % 3;
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{65'537}, kMost}) {
      fill(mine, bytes, self.rank(), self.stream);
      DeviceBatch batch = self.communicator.batch();
      batch.send(mine.device(), bytes, DataType::u8, right, self.stream);
      batch.recv(theirs.device(), bytes, DataType::u8, left, self.stream);
      batch.submit();
      theirs.download(bytes, self.stream);
      self.synchronize();
      EXPECT_EQ(first_wrong(theirs, bytes, left), bytes);
    }
  });
}

TEST(DeviceMessages, SmallOnesDoNotWaitForTheirReceiver) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena mine(1000, self.device()), theirs(1000, self.device());
    fill(mine, 1000, self.rank(), self.stream);
    self.communicator.send(mine.device(), 1000, DataType::u8, 1 - self.rank(), self.stream);
    self.communicator.recv(theirs.device(), 250, DataType::f32, 1 - self.rank(), self.stream);
    theirs.download(1000, self.stream);
    self.synchronize();
    EXPECT_EQ(first_wrong(theirs, 1000, 1 - self.rank()), 1000u);
  });
}

TEST(DeviceMessages, ArriveInOrderBetweenCollectives) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena one(64, self.device()), sum(64, self.device());
    for (int round = 0; round < 50; ++round) {
      fill(one, 64, round, self.stream);
      if (self.rank() == 0) {
        self.communicator.send(one.device(), 64, DataType::u8, 1, self.stream);
      } else {
        self.communicator.recv(one.device(), 64, DataType::u8, 0, self.stream);
      }
      self.communicator.all_reduce(one.device(), sum.device(), 64, DataType::u8, ReduceOp::max, self.stream);
      sum.download(64, self.stream);
      self.synchronize();
      ASSERT_EQ(first_wrong(sum, 64, round), 64u) << "round " << round;
    }
  });
}

TEST(DeviceMessages, ToTheOwnRankMeetInABatch) {
  run_on_devices(1, kMode, [](DeviceRank& self) {
    DeviceArena mine(512, 0), theirs(512, 0);
    fill(mine, 512, 3, self.stream);
    DeviceBatch batch = self.communicator.batch();
    batch.recv(theirs.device(), 512, DataType::u8, 0, self.stream);
    batch.send(mine.device(), 512, DataType::u8, 0, self.stream);
    batch.submit();
    theirs.download(512, self.stream);
    self.synchronize();
    EXPECT_EQ(first_wrong(theirs, 512, 3), 512u);
  });
}

/// They would be written beyond the smaller buffer. The stream, which is busy, is let pass; alone it has
/// nobody's words to wait for.
TEST(DeviceMessages, ToTheOwnRankOfDifferentSizesAreAnError) {
  run_on_devices(1, kMode, [](DeviceRank& self) {
    DeviceArena mine(512, 0), theirs(512, 0);
    internal::Backend& backend = *internal::testing::must(internal::device_backend());
    auto* const gate = static_cast<std::uint32_t*>(internal::testing::must(backend.allocate_pinned(4)));
    fill(mine, 512, 3, self.stream);
    fill(theirs, 512, 4, self.stream);
    internal::testing::must(backend.wait_value(gate, 1, self.stream));
    DeviceBatch batch = self.communicator.batch();
    batch.send(mine.device(), 512, DataType::u8, 0, self.stream);
    batch.recv(theirs.device(), 500, DataType::u8, 0, self.stream);
    try {
      batch.submit();
    } catch (const Error& error) {  // At once where the stream itself copies.
      EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    }
    internal::sleep_for(std::chrono::milliseconds(20));  // What lets the stream pass comes before it has.
    std::atomic_ref(*gate).store(1);
    internal::testing::wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
    EXPECT_NE(self.communicator.error_text().find("512 bytes"), std::string::npos)
        << self.communicator.error_text();
    theirs.download(512, self.stream);
    self.stream.synchronize();
    EXPECT_EQ(first_wrong(theirs, 512, 4), 512u);
    internal::testing::must(backend.free_pinned(gate));
  });
}

/// Long enough to be seen under way.
TEST(DeviceMessages, ALongOneToTheOwnRankIsThereWhenTheStreamGoesOn) {
  run_on_devices(1, kMode, [](DeviceRank& self) {
    constexpr std::size_t kBytes = 16 << 20;
    DeviceArena mine(kBytes, 0), theirs(kBytes, 0);
    fill(mine, kBytes, 3, self.stream);
    DeviceBatch batch = self.communicator.batch();
    batch.send(mine.device(), kBytes, DataType::u8, 0, self.stream);
    batch.recv(theirs.device(), kBytes, DataType::u8, 0, self.stream);
    batch.submit();
    theirs.download(kBytes, self.stream);
    self.synchronize();
    EXPECT_EQ(first_wrong(theirs, kBytes, 3), kBytes);
  });
}

/// Its buffer is the sender's again when the stream goes on.
TEST_P(DeviceMessages, ALongOneIsReadBeforeItsBufferIsUsedAgain) {
  internal::testing::Shared<std::atomic<bool>> used;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    constexpr std::size_t kBytes = 4 << 20;
    DeviceArena arena(kBytes, self.device());
    if (GetParam()) self.communicator.register_buffer(arena.device(), kBytes);
    if (self.rank() == 0) {
      fill(arena, kBytes, 0, self.stream);
      self.stream.synchronize();  // The host's copy is filled again.
      self.communicator.send(arena.device(), kBytes, DataType::u8, 1, self.stream);
      fill(arena, kBytes, 5, self.stream);
      self.synchronize();
      used->store(true);
    } else {
      // Who does not wait for this rank has time to show it.
      for (int i = 0; i < 100 && !used->load(); ++i) internal::sleep_for(std::chrono::milliseconds(1));
      self.communicator.recv(arena.device(), kBytes, DataType::u8, 0, self.stream);
      arena.download(kBytes, self.stream);
      self.synchronize();
      EXPECT_EQ(first_wrong(arena, kBytes, 0), kBytes);
    }
  });
}

/// Many messages, some of them several to one peer, in an order of its own on each rank.
TEST(DeviceMessages, OfABatchDoNotWaitForOneAnother) {
  run_on_devices(3, kMode, [](DeviceRank& self) {
    constexpr std::size_t kEach = 3'000, kTimes = 20;
    DeviceArena mine(kEach, self.device()), theirs(3 * kTimes * kEach, self.device());
    internal::TestStream other(self.device());
    fill(mine, kEach, self.rank(), self.stream);
    self.stream.synchronize();
    DeviceBatch batch = self.communicator.batch();
    for (std::size_t time = 0; time < kTimes; ++time) {
      for (int k = 0; k < 3; ++k) {
        const int peer = (self.rank() + k * (1 + self.rank() % 2)) % 3;
        const std::size_t place = (static_cast<std::size_t>(peer) * kTimes + time) * kEach;
        if (time % 2 == 0) batch.send(mine.device(), kEach, DataType::u8, peer, self.stream);
        batch.recv(theirs.device() + place, kEach, DataType::u8, peer, other);
        if (time % 2 != 0) batch.send(mine.device(), kEach, DataType::u8, peer, self.stream);
      }
    }
    batch.submit();
    theirs.download(theirs.size(), other);
    other.synchronize();
    self.synchronize();
    for (std::size_t block = 0; block < 3 * kTimes; ++block) {
      const auto seed = block / kTimes * 31;
      for (std::size_t i = 0; i < kEach; ++i)
        ASSERT_EQ(theirs.host()[block * kEach + i], static_cast<std::byte>((i * 7 + seed) % 251)) << block;
    }
  });
}

// Each has come to the batch before any of it runs.
TEST(DeviceMessages, OfABatchAreSentAsTheirOwnStreamsLeaveThem) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    constexpr std::size_t kEach = 3'000;
    const int peer = 1 - self.rank();
    internal::Backend& backend = *internal::testing::must(internal::device_backend());
    DeviceArena soon(kEach, self.device()), late(kEach, self.device());
    DeviceArena first(kEach, self.device()), second(kEach, self.device());
    internal::TestStream other(self.device());
    auto* const gate = static_cast<std::uint32_t*>(internal::testing::must(backend.allocate_pinned(4)));
    self.host.barrier();
    fill(soon, kEach, self.rank(), self.stream);
    internal::testing::must(backend.wait_value(gate, 1, other));
    fill(late, kEach, self.rank() + 2, other);
    DeviceBatch batch = self.communicator.batch();
    batch.send(soon.device(), kEach, DataType::u8, peer, self.stream);
    batch.recv(first.device(), kEach, DataType::u8, peer, self.stream);
    batch.send(late.device(), kEach, DataType::u8, peer, other);
    batch.recv(second.device(), kEach, DataType::u8, peer, other);
    batch.submit();
    internal::sleep_for(std::chrono::milliseconds(20));  // What does not wait has time to show it.
    std::atomic_ref(*gate).store(1);
    second.download(kEach, other);
    other.synchronize();
    self.synchronize();
    EXPECT_EQ(first_wrong(second, kEach, peer + 2), kEach);
    internal::testing::must(backend.free_pinned(gate));
  });
}

TEST(DeviceMessages, TooManyForAKernelAreRefused) {
  if (!testing::kernels_wait(kMode, 2)) GTEST_SKIP() << "there a thread passes any number";
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena memory(64, self.device());
    DeviceBatch batch = self.communicator.batch();
    for (int i = 0; i <= internal::sync::kMaxMessages; ++i)
      batch.recv(memory.device(), 1, DataType::u8, 1 - self.rank(), self.stream);
    const Error error = thrown_by([&] { batch.submit(); });
    EXPECT_EQ(error.code(), ErrorCode::not_supported) << error.what();
  });
}

/// Nobody is told, and nobody is out of step: the peer gets what is sent in its place.
TEST(DeviceMessages, ThatAreRefusedCanBeMadeAgain) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena memory(1000, self.device());
    std::byte elsewhere[1000] = {};
    const auto call = [&](void* buffer) {
      DeviceBatch batch = self.communicator.batch();
      if (self.rank() == 0) {
        batch.send(buffer, 1000, DataType::u8, 1, self.stream);
      } else {
        batch.recv(buffer, 1000, DataType::u8, 0, self.stream);
      }
      batch.submit();
    };
    fill(memory, 1000, self.rank(), self.stream);
    for (int round = 0; round < 2; ++round) {
      if (round == self.rank()) {
        EXPECT_EQ(testing::error_of([&] { call(elsewhere); }).first, ErrorCode::invalid_argument);
      }
      call(memory.device());
    }
    memory.download(1000, self.stream);
    self.synchronize();
    EXPECT_EQ(first_wrong(memory, 1000, 0), 1000u);
  });
}

/// That of the batch which did not come, as its caller made it.
TEST(DeviceMessages, ThatAreLateAreNamed) {
  run_on_devices(3, kMode, [](DeviceRank& self) {
    DeviceArena memory(4096, self.device());
    if (self.rank() == 0) {
      DeviceCallOptions options;
      options.timeout = std::chrono::milliseconds(200);
      DeviceBatch batch = self.communicator.batch();
      batch.recv(memory.device(), 50, DataType::i32, 1, self.stream);
      batch.recv(memory.device() + 1024, 60, DataType::f64, 2, self.stream);
      batch.submit(options);
      self.stream.synchronize();
      EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
      EXPECT_NE(self.communicator.error_text().find("recv(f64 x 60) from rank 2"), std::string::npos)
          << self.communicator.error_text();
    } else {
      if (self.rank() == 1) self.communicator.send(memory.device(), 50, DataType::i32, 0, self.stream);
      internal::testing::wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    }
  });
}

/// A receive behind one that was given up finds what that one left, which is not of its size.
TEST(DeviceMessages, ThatAreLateAreNotTakenForThoseOfTheNextCall) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena memory(4096, self.device());
    if (self.rank() == 0) {
      DeviceCallOptions options;
      options.timeout = std::chrono::milliseconds(200);
      DeviceBatch batch = self.communicator.batch();
      batch.recv(memory.device(), 50, DataType::u8, 1, self.stream);
      batch.recv(memory.device() + 1024, 60, DataType::u8, 1, self.stream);
      batch.submit(options);
      self.communicator.recv(memory.device() + 2048, 70, DataType::u8, 1, self.stream);
      self.stream.synchronize();
      EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
    } else {
      self.communicator.send(memory.device(), 50, DataType::u8, 0, self.stream);
      internal::testing::wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    }
  });
}

TEST(DeviceMessages, OfDifferentSizesNameBothSides) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena memory(4096, self.device());
    if (self.rank() == 0) {
      self.communicator.send(memory.device(), 100, DataType::u8, 1, self.stream);
    } else {
      self.communicator.recv(memory.device(), 200, DataType::u8, 0, self.stream);
    }
    self.stream.synchronize();
    internal::testing::wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
    EXPECT_NE(self.communicator.error_text().find("sends 100 bytes"), std::string::npos)
        << self.communicator.error_text();
    EXPECT_NE(self.communicator.error_text().find("receives 200"), std::string::npos)
        << self.communicator.error_text();
    EXPECT_TRUE(self.rank() == 0 ||
                self.communicator.error_text().find("recv(u8 x 200) from rank 0") != std::string::npos)
        << self.communicator.error_text();
  });
}

}  // namespace
}  // namespace lockstep
