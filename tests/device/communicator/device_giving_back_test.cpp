// When memory is freed and unmapped: which may wait for all streams of its device, and keep other threads
// from it meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>

#include "lib/device/host/host_backend.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::Status;
using internal::testing::Enqueued;
using internal::testing::Shared;
using internal::testing::wait_until;
using testing::DeviceRank;
using testing::run_on_devices;

const char* const kMode = testing::test_run("stream_sync");

void a_moment() { internal::sleep_for(std::chrono::milliseconds(50)); }

TEST(DeviceGivingBack, MemoryIsFreedWhileStreamsWait) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 20, self.device());
    void* const other = allocate_device(4096, self.device());
    if (self.rank() == 1) a_moment();  // Rank 0's stream waits meanwhile.
    self.all_reduce(arena, arena.size() / 4);
    free_device(other);
    self.synchronize();
    EXPECT_EQ(internal::HostBackend::hangs(), 0);
  });
}

/// A call of another communicator holds the free back, and its end does not let it go where a stream waits
/// for a peer: who frees keeps the device from the thread that would end that wait.
TEST(DeviceGivingBack, MemoryIsNotFreedWhileAStreamWaitsForAPeerThatIsGone) {
  if (std::string_view(kMode) == "host_sync") GTEST_SKIP() << "there no stream waits for a peer";
  Shared<std::atomic<bool>> enqueued;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    DeviceOptions by_thread;
    by_thread.mode = DeviceMode::host_sync;
    DeviceCommunicator other(self.host, self.device(), by_thread);
    std::optional<DeviceCommunicator> waiting(std::in_place, self.host, self.device());
    DeviceArena arena(4096, self.device());
    const auto reduce = [&](DeviceCommunicator& ranks, std::size_t place, Stream stream) {
      std::byte* const at = arena.device() + place;
      ranks.all_reduce(at, at, 100, DataType::i32, ReduceOp::sum, stream);
    };
    const internal::TestStream beside(self.device());
    if (self.rank() == 0) {
      void* const memory = allocate_device(4096, self.device());
      reduce(other, 0, self.stream);
      free_device(memory);
      reduce(*waiting, 2048, beside);
      enqueued->store(true);
    } else {
      wait_until([&] { return enqueued->load(); });
      reduce(other, 0, self.stream);
    }
    self.stream.synchronize();
    other.wait();
    a_moment();
    if (self.rank() == 1) return waiting.reset();
    beside.synchronize();
    wait_until([&] { return waiting->state() != ErrorCode::ok; });
    EXPECT_EQ(waiting->state(), ErrorCode::peer_lost) << waiting->error_text();
    EXPECT_EQ(internal::HostBackend::hangs(), 0);
  });
}

/// Such a call holds its stream until all of it is enqueued.
TEST(DeviceGivingBack, MemoryIsFreedBesideAThreadThatCallsOnAWindow) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 20, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    void* const other = allocate_device(4096, self.device());
    std::atomic<bool> freed{false};
    std::thread frees;
    self.recorder.before = [&](const Enqueued& next) {
      if (next.what == "reduce" && !frees.joinable()) {
        frees = std::thread([&] {
          free_device(other);
          freed = true;
        });
        EXPECT_TRUE(testing::eventually([&] { return freed.load(); })) << "it waits for the stream";
      }
      return Status();
    };
    self.all_reduce(arena, arena.size() / 4);
    self.synchronize();
    frees.join();
    EXPECT_EQ(internal::HostBackend::hangs(), 0);
  });
}

/// Rank 1 lets go of what rank 0 has freed between calls that are enqueued ahead.
TEST(DeviceGivingBack, AFreedBufferOfAPeerIsUnmappedWhileStreamsWait) {
  Shared<std::atomic<int>> enqueued;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    DeviceArena kept(1 << 20, self.device());
    self.communicator.register_buffer(kept.device(), kept.size());
    {
      DeviceArena freed(1 << 20, self.device());
      self.communicator.register_buffer(freed.device(), freed.size());
      self.all_reduce(freed, freed.size() / 4);
      self.synchronize();
      self.host.barrier();
      if (self.rank() == 1) wait_until([&] { return enqueued->load() == 1; });
      self.communicator.deregister(freed.device());
    }
    if (self.rank() == 0) {
      enqueued->store(1);  // Freed it is.
      wait_until([&] { return enqueued->load() == 2; });
      a_moment();
    }
    for (int i = 0; i < 4; ++i) self.all_reduce(kept, kept.size() / 4);
    enqueued->store(2);
    self.synchronize();
    EXPECT_EQ(internal::HostBackend::hangs(), 0);
  });
}

/// Which its owner withdrew first, so that nothing here has it beside the window.
TEST(DeviceGivingBack, AWindowIsUnmappedWhenNoStreamWaits) {
  Shared<std::atomic<bool>> deregistered;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    DeviceArena first(1 << 20, self.device()), second(1 << 20, self.device()), plain(4096, self.device());
    for (DeviceArena* const arena : {&first, &second})
      self.communicator.register_window(arena->device(), arena->size(), true);
    self.host.barrier();
    if (self.rank() == 0) self.communicator.deregister(first.device());
    self.host.barrier();
    self.communicator.deregister(second.device());
    if (self.rank() == 0) {
      EXPECT_TRUE(testing::eventually([&] { return deregistered->load(); })) << "it waits for the stream";
      self.all_reduce(plain, plain.size() / 4);
    } else {
      self.all_reduce(plain, plain.size() / 4);
      self.communicator.deregister(first.device());
      deregistered->store(true);
    }
    self.synchronize();
    EXPECT_EQ(internal::HostBackend::hangs(), 0);
  });
}

}  // namespace
}  // namespace lockstep
