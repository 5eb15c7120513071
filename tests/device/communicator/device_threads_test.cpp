// Threads: which device they work on, and streams that threads have of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lib/device/host/host_backend.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/device_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::kStreamPerThread;
using internal::TestStream;
using internal::testing::must;
using testing::backend;
using testing::DeviceRank;
using testing::thrown_by;

const char* const kMode = testing::test_run("host_sync");

/// All ways that a rank has of using its device.
void use(DeviceCommunicator& ranks, int device) {
  const TestStream stream(device);
  const DeviceArena arena(4096, device), registered(1 << 16, device);
  ranks.register_window(registered.device(), registered.size(), true);
  ranks.all_reduce(arena.device(), arena.device(), 64, DataType::i32, ReduceOp::sum, stream);
  ranks.all_reduce(registered.device(), registered.device(), 1 << 14, DataType::i32, ReduceOp::sum, stream);
  DeviceBatch batch = ranks.batch();
  batch.send(arena.device(), 64, DataType::u8, 1 - ranks.rank(), stream);
  batch.recv(arena.device() + 64, 64, DataType::u8, 1 - ranks.rank(), stream);
  batch.submit();
  stream.synchronize();
  ranks.wait();
  ranks.deregister(registered.device());
}

/// A context takes hundreds of MiB of a device, in every process: eight ranks would all take them of the
/// first.
TEST(DeviceThreads, NoneOfTheLibraryWorksOnAnotherDeviceThanTheRanks) {
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place;
  internal::testing::run_forked(2, [&](int rank) {
    const int device = 2 + rank;
    must(backend().select(device));
    Communicator host = place.join(rank, 2, "auto");
    auto ranks = std::make_unique<DeviceCommunicator>(host, device);
    use(*ranks, device);
    ranks->finalize();
    std::thread([&] {  // That has no device yet.
      ranks.reset();
      must(backend().free_pinned(must(backend().allocate_pinned(64))));
    })
        .join();
    auto& devices = static_cast<internal::HostBackend&>(backend());
    EXPECT_TRUE(devices.has_context(device));
    for (const int other : {0, 1, 3 - rank, 7})
      EXPECT_FALSE(devices.has_context(other)) << "device " << other;
    EXPECT_EQ(must(backend().selected()), device);
  });
}

TEST(DeviceThreads, CallsOnTheOwnStreamsOfThreadsRunInTheirOrder) {
  testing::run_on_devices(2, kMode, [](DeviceRank& self) {
    const DeviceArena first(4096, self.device()), second(4096, self.device());
    auto* const word = static_cast<std::uint32_t*>(must(backend().allocate_pinned(4)));
    const auto ended = must(backend().create_event());
    const auto call = [&](const DeviceArena& arena) {
      must(backend().select(self.device()));
      if (&arena == &first) must(backend().wait_value(word, 1, kStreamPerThread));
      must(backend().fill(arena.device(), 1, 64, kStreamPerThread));
      self.communicator.all_reduce(arena.device(), arena.device(), 64, DataType::u8, ReduceOp::sum,
                                   kStreamPerThread);
      must(backend().record(ended, kStreamPerThread));
    };
    std::thread([&] { call(first); }).join();
    std::thread([&] { call(second); }).join();
    internal::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(must(backend().query(ended))) << "the second call went before the first";
    std::atomic_ref(*word).store(1);
    must(backend().synchronize_event(ended));
    for (const DeviceArena* arena : {&first, &second})
      EXPECT_EQ(std::count(arena->device(), arena->device() + 64, std::byte{2}), 64);
    must(backend().destroy_event(ended));
    must(backend().free_pinned(word));
  });
}

/// A rank that is a thread.
struct ThreadRank {
  DeviceCommunicator communicator;
  const TestStream& shared;  ///< Of all ranks.
  const TestStream own{0};
  const DeviceArena arena{4096, 0};

  /// The time of `rank` to use the shared stream, when the others use their own.
  Stream by_turns(int rank) const { return communicator.rank() == rank ? Stream(shared) : Stream(own); }
  void all_reduce(Stream stream) {
    communicator.all_reduce(arena.device(), arena.device(), 64, DataType::i32, ReduceOp::sum, stream);
  }
};

/// Ranks of one process on device 0.
void run_threads(int ranks, const std::function<void(ThreadRank&)>& body) {
  testing::use_host_backend(kMode);
  internal::testing::run_forked(1, [&](int) {
    must(backend().select(0));
    const TestStream shared(0);
    testing::on_ranks(ranks, "auto", [&](Communicator& host) {
      must(backend().select(0));
      ThreadRank self{DeviceCommunicator(host, 0), shared};
      body(self);
    });
  });
}

/// Blocks the device for a moment, again and again: other threads' calls stand in a queue for it.
class BusyDevice {
 public:
  ~BusyDevice() {
    ends_.store(true);
    thread_.join();
  }

 private:
  void work() {
    must(backend().select(0));
    const TestStream stream(0);
    const DeviceArena arena(1 << 16, 0);
    std::vector<std::byte> pageable(arena.size());
    while (!ends_.load()) must(backend().copy(pageable.data(), arena.device(), pageable.size(), stream));
  }

  std::atomic<bool> ends_{false};
  std::thread thread_{[this] { work(); }};  ///< Last: it uses the other.
};

/// What another rank puts in the stream does not come between the parts of a call.
TEST(DeviceThreads, ByTurnsRanksShareAStream) {
  run_threads(4, [](ThreadRank& self) {
    std::optional<BusyDevice> busy;
    if (self.communicator.rank() == 0) busy.emplace();
    for (int turn = 0; turn < 200; ++turn) {
      self.all_reduce(self.by_turns(turn % self.communicator.size()));
      self.communicator.wait();
    }
  });
}

/// Each rank's part of a call would wait for the other's behind it.
TEST(DeviceThreads, RanksThatShareAStreamAreRefusedAtOnce) {
  std::atomic<int> called{0};
  run_threads(2, [&](ThreadRank& self) {
    DeviceCommunicator& ranks = self.communicator;
    for (const int turn : {0, 1}) {  // By turns they may.
      self.all_reduce(self.by_turns(turn));
      ranks.wait();
    }
    internal::testing::wait_until([&] { return called.load() == ranks.rank(); });
    const auto start = std::chrono::steady_clock::now();
    if (ranks.rank() == 0) {
      self.all_reduce(self.shared);
      called.store(1);
    } else {
      const Error error = thrown_by([&] { self.all_reduce(self.shared); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("streams of their own"), std::string::npos) << error.what();
    }
    internal::testing::wait_until([&] { return ranks.state() != ErrorCode::ok; });
    self.shared.synchronize();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  });
}

}  // namespace
}  // namespace lockstep
