// What becomes of device memory that its owner withdraws, frees or retires while peers have it mapped.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/recording_backend.hpp"
#include "tests/transports/device_memory_sides.hpp"

namespace lockstep::internal {
namespace {

using testing::kBytes;
using testing::Meeting;
using testing::must;
using testing::run_sides;
using testing::Side;

/// A program frees by itself (cudaFree) what a peer has mapped, and gets the addresses again.
TEST(DeviceExports, WhereAPeerStillHasTheOldMemoryTheNewIsStaged) {
  run_sides([](Side& side, Meeting& meeting, int rank) {
    if (rank == 0) {
      std::byte* const memory = side.allocate();
      meeting.ref[0] = side.share(memory, kBytes);
      meeting.board.meet(2);
      meeting.board.meet(2);
      side.exports.unshare(meeting.ref[0]);
      must(side.backend.free(memory));
      std::byte* again = nullptr;
      for (int tries = 0; tries < 64 && again != memory; ++tries) again = side.allocate();
      ASSERT_EQ(again, memory);
      EXPECT_EQ(must(side.exports.share(again, kBytes)), std::nullopt);
      std::byte* const beside = side.allocate(MemoryKind::shareable);
      EXPECT_NE(must(side.exports.share(beside, kBytes)), std::nullopt);
      meeting.board.meet(2);
      meeting.board.meet(2);  // Let go there.
      meeting.ref[1] = side.share(again, kBytes);
      meeting.board.meet(2);
      return meeting.board.meet(2);
    }
    meeting.board.meet(2);
    std::optional<DeviceLease> lease = must(side.imports.resolve(side.peer, meeting.ref[0], kBytes, 0));
    meeting.board.meet(2);
    meeting.board.meet(2);
    lease.reset();
    side.imports.drop_withdrawn();
    meeting.board.meet(2);
    meeting.board.meet(2);
    EXPECT_TRUE(side.imports.resolve(side.peer, meeting.ref[1], kBytes, 0).ok());
    meeting.board.meet(2);
  });
}

TEST(DeviceExports, TheOwnerSeesWhoHoldsWhatItWithdrew) {
  run_sides([](Side& side, Meeting& meeting, int rank) {
    if (rank == 0) {
      std::byte* const memory = side.allocate();
      const SegmentRef ref = meeting.ref[0] = side.share(memory, kBytes);
      const SegmentRef again = side.share(memory, 10);
      meeting.board.meet(2);
      meeting.board.meet(2);  // Mapped there, and in use.
      side.exports.unshare(again);
      EXPECT_FALSE(side.exports.held(ref)) << "it is not withdrawn";
      EXPECT_TRUE(side.exports.find(ref.segment, ref.generation).has_value()) << "one user is left";
      side.exports.unshare(ref);
      EXPECT_TRUE(side.exports.held(ref));
      meeting.board.meet(2);
      meeting.board.meet(2);  // Dropped there, but leased.
      EXPECT_TRUE(side.exports.held(ref));
      meeting.board.meet(2);
      meeting.board.meet(2);
      EXPECT_FALSE(side.exports.held(ref));
      must(side.backend.free(memory));
      return;
    }
    meeting.board.meet(2);
    std::optional<DeviceLease> lease = must(side.imports.resolve(side.peer, meeting.ref[0], kBytes, 0));
    meeting.board.meet(2);
    meeting.board.meet(2);
    side.imports.drop_withdrawn();
    EXPECT_EQ(side.imports.size(), 0u);
    meeting.board.meet(2);
    meeting.board.meet(2);
    lease.reset();
    meeting.board.meet(2);
  });
}

TEST(DeviceExports, WhatIsRetiredIsFreedWhenNobodyUsesIt) {
  testing::run_forked(1, [](int) {
    HostBackend backend;
    DeviceExports exports(backend);
    DeviceImports imports(backend, exports);
    const auto exists = [&](void* memory) {
      return must(backend.locate(memory)).space == MemorySpace::device;
    };
    void* const memory = must(backend.allocate(0, kBytes, MemoryKind::plain));
    const SegmentRef ref = *must(exports.share(memory, kBytes));
    const DeviceOwner self{process_token(), ""};
    std::optional<DeviceLease> lease = must(imports.resolve(self, ref, kBytes, 0));
    exports.unshare(ref);
    EXPECT_TRUE(exports.held(ref));
    exports.retire(memory);
    EXPECT_TRUE(exists(memory)) << "leased";
    lease.reset();
    EXPECT_FALSE(exports.held(ref));
    void* const other = must(backend.allocate(0, kBytes, MemoryKind::plain));
    const SegmentRef second = *must(exports.share(other, kBytes));
    EXPECT_FALSE(exists(memory));
    exports.retire(other);  // Still shared.
    EXPECT_TRUE(exists(other));
    exports.unshare(second);
    EXPECT_FALSE(exists(other));
  });
}

/// To free waits for streams, and what they wait for may come only after another thread has shared memory.
TEST(DeviceExports, IsSharedAndWithdrawnWhileOtherMemoryIsBeingFreed) {
  testing::run_forked(1, [](int) {
    ::alarm(60);  // Rather than wait for ever.
    HostBackend host;
    testing::RecordingBackend backend(host);
    DeviceExports exports(backend);
    std::atomic<bool> frees{false}, shared{false};
    backend.before_free = [&] {
      frees = true;
      testing::wait_until([&] { return shared.load(); });
    };
    void* const memory = must(backend.allocate(0, kBytes, MemoryKind::plain));
    void* const other = must(backend.allocate(0, kBytes, MemoryKind::plain));
    std::thread freeing([&] { exports.retire(memory); });
    testing::wait_until([&] { return frees.load(); });
    exports.unshare(*must(exports.share(other, kBytes)));
    shared = true;
    freeing.join();
    EXPECT_NE(must(backend.locate(memory)).space, MemorySpace::device);
  });
}

TEST(DeviceExports, AKilledPeerHoldsNothingAndItsMemoryStaysUntilDropped) {
  testing::Shared<Meeting> shared;
  const std::vector<pid_t> ranks = testing::start_forked(2, [&](int rank) {
    Meeting& meeting = *shared;
    Side side(meeting, rank);
    std::byte* const memory = side.allocate();
    std::memset(memory, 5, kBytes);
    meeting.ref[static_cast<std::size_t>(rank)] = side.share(memory, kBytes);
    meeting.board.meet(2);
    const SegmentRef theirs = meeting.ref[static_cast<std::size_t>(1 - rank)];
    std::optional<DeviceLease> lease = must(side.imports.resolve(side.peer, theirs, kBytes, 0));
    meeting.board.meet(2);
    if (rank == 1) ::raise(SIGKILL);
    const SegmentRef mine = meeting.ref[0];
    side.exports.unshare(mine);
    testing::wait_until([&] { return !side.exports.held(mine); });
    must(side.backend.free(memory));
    EXPECT_EQ(lease->address[kBytes - 1], std::byte{5});
    lease.reset();
    side.imports.drop_owner(side.peer.process);
    EXPECT_EQ(side.imports.size(), 0u);
    EXPECT_EQ(side.imports.resolve(side.peer, theirs, kBytes, 0).status().code(), ErrorCode::peer_lost);
  });
  EXPECT_EQ(testing::wait_for(ranks[0]), 0);
  EXPECT_TRUE(WIFSIGNALED(testing::wait_for(ranks[1])));
}

}  // namespace
}  // namespace lockstep::internal
