// A rank that destroys its DeviceCommunicator when it is through with its own operations: what it did stays
// good, and who waits for more hears of it, long before any deadline.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "tests/device/communicator/device_world.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::Backend;
using internal::DeviceArena;
using internal::testing::must;
using internal::testing::Shared;
using internal::testing::wait_until;
using testing::DeviceRank;

const testing::DeviceRun kRun(testing::test_run("stream_sync"));
const char* const kMode = kRun.mode.c_str();
constexpr std::size_t kArena = 1 << 20;
constexpr int kLeaver = 1;

/// On all ranks, and the leaver's last operation: what each sends to the next one is there in time.
void pass_on(DeviceRank& self, const DeviceArena& arena) {
  DeviceBatch batch = self.communicator.batch();
  batch.send(arena.device(), 100, DataType::u8, (self.rank() + 1) % self.size(), self.stream);
  batch.recv(arena.device() + 100, 100, DataType::u8, (self.rank() + self.size() - 1) % self.size(),
             self.stream);
  batch.submit();
}

/// Rank 1 of three leaves; the others make `call`, in which each waits for it at the end. The error tells
/// what is `named`.
void expect_peer_lost(const std::function<void(DeviceRank&, const DeviceArena&)>& call,
                      const std::string& named = "rank 1") {
  ::setenv("LOCKSTEP_DEVICE_STAGING", "96K", 1);
  Shared<std::atomic<bool>> left;
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place, beside;
  internal::testing::run_forked(3, [&](int rank) {
    Communicator host = beside.join(rank, 3, "auto");
    std::optional<DeviceRank> self(std::in_place, place.join(rank, 3, "auto"));
    DeviceArena arena(kArena, self->device());
    pass_on(*self, arena);
    self->synchronize();
    self->communicator.wait();
    host.barrier();
    if (rank == kLeaver) {
      self.reset();
      left->store(true);
      host.barrier();  // The process lives on: nobody may take this for its death.
      return;
    }
    wait_until([&] { return left->load(); });
    try {
      call(*self, arena);
      self->stream.synchronize();
      wait_until([&] { return self->communicator.state() != ErrorCode::ok; });
    } catch (const Error&) {
      // As state() tells below.
    }
    self->stream.synchronize();
    EXPECT_EQ(self->communicator.state(), ErrorCode::peer_lost) << self->communicator.error_text();
    EXPECT_NE(self->communicator.error_text().find(named), std::string::npos)
        << self->communicator.error_text();
    host.barrier();
  });
}

TEST(DeviceLeaving, EndsSmallCollectives) {
  expect_peer_lost([](DeviceRank& self, const DeviceArena& arena) { self.all_reduce(arena, 50); });
}

TEST(DeviceLeaving, EndsLargeCollectives) {
  expect_peer_lost([](DeviceRank& self, const DeviceArena& arena) { self.all_reduce(arena, 100'000); });
}

TEST(DeviceLeaving, EndsAReceive) {
  expect_peer_lost(
      [](DeviceRank& self, const DeviceArena& arena) {
        self.communicator.recv(arena.device(), 100, DataType::f32, kLeaver, self.stream);
      },
      "recv(f32 x 100) from rank 1");
}

TEST(DeviceLeaving, EndsASendThatWaitsForItsReceiver) {
  expect_peer_lost(
      [](DeviceRank& self, const DeviceArena& arena) {
        self.communicator.send(arena.device(), kArena, DataType::u8, kLeaver, self.stream);
      },
      "send(u8 x 1048576) to rank 1");
}

TEST(DeviceLeaving, EndsReplays) {
  if (!testing::kernels_wait(kMode, 3)) GTEST_SKIP() << "nothing is captured there";
  expect_peer_lost([](DeviceRank& self, const DeviceArena& arena) {
    Backend& backend = *must(internal::device_backend());
    must(backend.begin_capture(self.stream));
    self.all_reduce(arena, 50);
    const internal::DeviceGraph graph = must(backend.end_capture(self.stream));
    must(backend.replay(graph, self.stream));
    must(backend.destroy_graph(graph));
  });
}

/// Also where the stream had passed it only just then: the receive finds what the sender left behind.
TEST(DeviceLeaving, LosesNothingThatWasSentBefore) {
  Shared<std::atomic<bool>> left;
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place, beside;
  internal::testing::run_forked(2, [&](int rank) {
    Communicator host = beside.join(rank, 2, "auto");
    std::optional<DeviceRank> self(std::in_place, place.join(rank, 2, "auto"));
    DeviceArena arena(4096, self->device());
    std::fill(arena.host().begin(), arena.host().end(), static_cast<std::byte>(rank));
    arena.upload(arena.size(), self->stream);
    if (rank == kLeaver) {
      Backend& backend = *must(internal::device_backend());
      auto* const word = static_cast<std::uint32_t*>(must(backend.allocate_pinned(4)));
      must(backend.wait_value(word, 1, self->stream));
      self->communicator.send(arena.device(), 1000, DataType::u8, 0, self->stream);
      internal::sleep_for(std::chrono::milliseconds(20));  // Its thread looks seldom by now.
      std::atomic_ref(*word).store(1);
      self->stream.synchronize();
      self.reset();
      must(backend.free_pinned(word));
      left->store(true);
    } else {
      wait_until([&] { return left->load(); });
      self->communicator.recv(arena.device(), 1000, DataType::u8, kLeaver, self->stream);
      arena.download(arena.size(), self->stream);
      self->synchronize();
      EXPECT_EQ(std::count(arena.host().begin(), arena.host().end(), std::byte{kLeaver}), 1000);
    }
    host.barrier();
  });
}

}  // namespace
}  // namespace lockstep
