// Device memory shared between processes, over the host backend, whose memory crosses processes for real.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "collectives/device/shared_buffers.hpp"
#include "lib/device/host/host_backend.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "lib/net/abstract_socket.hpp"
#include "tests/support/must.hpp"
#include "tests/support/recording_backend.hpp"
#include "tests/support/scarce_memory.hpp"
#include "tests/transports/device_memory_sides.hpp"
#include "transports/cuda_ipc/device_imports.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::ScarceMemory;
using testing::kBytes;
using testing::Meeting;
using testing::must;
using testing::run_sides;
using testing::Side;

/// Rank 0 shares an allocation; `map` is what rank 1 does with it.
template <class Map>
void map_from_a_peer(Map map) {
  run_sides([&](Side& side, Meeting& meeting, int rank) {
    if (rank == 0) meeting.ref[0] = side.share(side.allocate(), kBytes);
    meeting.board.meet(2);
    if (rank == 1) map(side, meeting.ref[0]);
    meeting.board.meet(2);
  });
}

class EveryKind : public ::testing::TestWithParam<MemoryKind> {};

TEST_P(EveryKind, IsMappedOnceAtAnyOffset) {
  run_sides([](Side& side, Meeting& meeting, int rank) {
    if (rank == 0) {
      std::byte* const memory = side.allocate(GetParam());
      std::memset(memory, 1, kBytes);
      meeting.ref[0] = side.share(memory + 100, 1'000);
      meeting.board.meet(2);
      meeting.board.meet(2);
      EXPECT_EQ(memory[100], std::byte{2});
      return;
    }
    meeting.board.meet(2);
    const DeviceLease lease = must(side.imports.resolve(side.peer, meeting.ref[0], 1'000, 0));
    EXPECT_EQ(lease.address, lease.allocation->base() + 100);
    EXPECT_EQ(lease.address[999], std::byte{1});
    lease.address[0] = std::byte{2};
    SegmentRef other = meeting.ref[0];
    other.offset = 0;  // Any part of the allocation.
    EXPECT_EQ(must(side.imports.resolve(side.peer, other, kBytes, 0)).address, lease.allocation->base());
    EXPECT_EQ(side.imports.size(), 1u);
    other.offset = 1;
    EXPECT_EQ(side.imports.resolve(side.peer, other, kBytes, 0).status().code(), ErrorCode::internal);
    other.offset = kBytes + 1;
    EXPECT_EQ(side.imports.resolve(side.peer, other, 1, 0).status().code(), ErrorCode::internal);
    const DeviceLease there = must(side.imports.resolve(side.peer, meeting.ref[0], 1, 3));
    EXPECT_NE(there.address, lease.address) << "another device has its own mapping";
    EXPECT_EQ(must(side.backend.locate(there.address)).device, 3);
    other = meeting.ref[0];
    ++other.generation;
    EXPECT_FALSE(side.imports.resolve(side.peer, other, 1, 0).ok()) << "it never was there";
    meeting.board.meet(2);
  });
}
INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind, ::testing::Values(MemoryKind::plain, MemoryKind::shareable));

TEST(DeviceMemory, WhatCannotBeExportedIsStaged) {
  testing::run_forked(1, [](int) {
    HostBackend backend;
    DeviceExports exports(backend);
    void* const memory = must(backend.allocate(0, kBytes, MemoryKind::pool));
    EXPECT_EQ(must(exports.share(memory, kBytes)), std::nullopt);
    void* const pinned = must(backend.allocate_pinned(kBytes));
    EXPECT_EQ(exports.share(pinned, kBytes).status().code(), ErrorCode::invalid_argument);
    void* const plain = must(backend.allocate(0, kBytes, MemoryKind::plain));
    EXPECT_EQ(exports.share(plain, kBytes + 1).status().code(), ErrorCode::invalid_argument);
    EXPECT_EQ(exports.share(plain, 0).status().code(), ErrorCode::invalid_argument);
  });
}

TEST(DeviceMemory, OfTheSameProcessIsNotMappedAgain) {
  testing::run_forked(1, [](int) {
    HostBackend backend;
    DeviceExports exports(backend);
    DeviceImports imports(backend, exports);
    auto* const memory = static_cast<std::byte*>(must(backend.allocate(1, kBytes, MemoryKind::plain)));
    const SegmentRef ref = *must(exports.share(memory + 8, 16));
    const DeviceOwner self{process_token(), "nobody answers here"};
    EXPECT_EQ(must(imports.resolve(self, ref, 16, 1)).address, memory + 8);
    EXPECT_EQ(must(imports.resolve(self, ref, 16, 5)).address, memory + 8)
        << "another device of this process";
    EXPECT_EQ(imports.size(), 0u);
    exports.unshare(ref);
    EXPECT_EQ(imports.resolve(self, ref, 16, 1).status().code(), ErrorCode::internal);
    EXPECT_FALSE(exports.held(ref));
  });
}

TEST(DeviceMemory, OfADeviceOutOfReachIsStaged) {
  run_sides([](Side& side, Meeting& meeting, int rank) {
    testing::RecordingBackend backend(side.backend);
    DeviceExports exports(backend);
    DeviceImports imports(backend, exports);
    void* const memory = must(backend.allocate(2, kBytes, MemoryKind::plain));
    const SegmentRef mine = *must(exports.share(memory, kBytes));
    meeting.ref[static_cast<std::size_t>(rank)] = mine;
    meeting.board.meet(2);
    const SegmentRef theirs = meeting.ref[static_cast<std::size_t>(1 - rank)];
    const DeviceOwner self{process_token(), "nobody answers here"};
    backend.reaches = false;
    for (const auto& [owner, ref] : {std::pair(self, mine), std::pair(side.peer, theirs)}) {
      const Status refused = imports.resolve(owner, ref, 1, 3).status();
      EXPECT_EQ(refused.code(), ErrorCode::not_supported);
      EXPECT_EQ(refused.message(), "device 3 has no access to the memory of device 2");
      EXPECT_TRUE(imports.resolve(owner, ref, 1, 2).ok());
    }
    backend.reaches = true;
    backend.peers_enabled = 0;
    EXPECT_TRUE(imports.resolve(self, mine, 1, 3).ok());
    EXPECT_EQ(backend.peers_enabled, 1);
    EXPECT_TRUE(imports.resolve(side.peer, theirs, 1, 3).ok());
    EXPECT_EQ(backend.peers_enabled, 1) << "the import opens this memory and no other";
    meeting.board.meet(2);
  });
}

TEST(DeviceMemory, IsLetGoOnlyWhereNobodyElseHasALease) {
  map_from_a_peer([](Side& side, const SegmentRef& theirs) {
    const DeviceLease lease = must(side.imports.resolve(side.peer, theirs, kBytes, 0));
    {
      const DeviceLease another = lease;
      side.imports.drop_unused(lease.allocation);
      EXPECT_EQ(side.imports.size(), 1u);
    }
    side.imports.drop_owner(side.peer.process + 1);
    EXPECT_EQ(side.imports.size(), 1u) << "another owner's";
    side.imports.drop_unused(lease.allocation);
    EXPECT_EQ(side.imports.size(), 0u);
  });
}

/// A process that listens for those who want its descriptors, and never answers.
class SilentOwner {
 public:
  SilentOwner() : name_("lockstep-test-silent-" + std::to_string(::getpid())) {
    listener_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!bind_abstract(listener_, name_) || ::listen(listener_.get(), 4) != 0)
      throw std::runtime_error("cannot listen");
  }
  const std::string& name() const { return name_; }
  /// Blocks until somebody asks.
  Fd asked() const { return Fd(::accept(listener_.get(), nullptr, nullptr)); }

 private:
  const std::string name_;
  Fd listener_;
};

TEST(DeviceMemory, AllocationsOfOneGenerationAreKnownByTheirBase) {
  HostBackend host;
  testing::RecordingBackend backend(host);
  backend.generation = 7;
  DeviceExports exports(backend);
  std::vector<void*> memory;
  std::vector<SegmentRef> refs;
  for (int i = 0; i < 2; ++i) {
    memory.push_back(must(backend.allocate(0, kBytes, MemoryKind::plain)));
    refs.push_back(*must(exports.share(memory.back(), kBytes)));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const auto own = exports.find(refs[i].segment, refs[i].generation);
    ASSERT_TRUE(own.has_value());
    EXPECT_EQ(own->allocation.base, memory[i]);
    exports.unshare(refs[i]);
    must(backend.free(memory[i]));
  }
}

TEST(DeviceMemory, AnOwnerThatDoesNotAnswerKeepsNobodyElseWaiting) {
  map_from_a_peer([](Side& side, const SegmentRef& theirs) {
    const SilentOwner silent;
    std::atomic<bool> answered{false};
    std::thread waiting([&] {
      EXPECT_FALSE(side.imports.resolve({12345, silent.name()}, {12345, 1, 1, 0}, 1, 0).ok());
      answered = true;
    });
    const Fd question = silent.asked();
    must(side.imports.resolve(side.peer, theirs, 1, 0));
    EXPECT_FALSE(answered);
    ::shutdown(question.get(), SHUT_RDWR);
    waiting.join();
  });
}

TEST(DeviceMemory, IsMappedOnceForAllThreads) {
  map_from_a_peer([](Side& side, const SegmentRef& theirs) {
    std::array<DeviceLease, 8> leases;
    std::vector<std::thread> threads;
    for (DeviceLease& lease : leases) {
      threads.emplace_back([&] { lease = must(side.imports.resolve(side.peer, theirs, kBytes, 0)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const DeviceLease& lease : leases) EXPECT_EQ(lease.allocation, leases[0].allocation);
    EXPECT_EQ(side.imports.size(), 1u);
  });
}

TEST(DeviceMemory, AnAddressThatIsAllocatedAgainIsMappedAgain) {
  run_sides([](Side& side, Meeting& meeting, int rank) {
    for (int round = 0; round < 3; ++round) {
      if (rank == 0) {
        std::byte* const memory = side.allocate();
        memory[0] = static_cast<std::byte>(round + 1);
        meeting.ref[0] = side.share(memory, kBytes);
        meeting.board.meet(2);
        meeting.board.meet(2);
        side.exports.unshare(meeting.ref[0]);
        must(side.backend.free(memory));
        meeting.board.meet(2);
      } else {
        meeting.board.meet(2);
        const SegmentRef ref = meeting.ref[0];
        EXPECT_EQ(must(side.imports.resolve(side.peer, ref, 1, 0)).address[0],
                  static_cast<std::byte>(round + 1));
        EXPECT_EQ(side.imports.size(), 1u);
        meeting.board.meet(2);
        meeting.board.meet(2);
        EXPECT_EQ(side.imports.resolve(side.peer, ref, 1, 0).status().code(), ErrorCode::internal);
        EXPECT_EQ(side.imports.size(), 0u);
      }
      meeting.board.meet(2);
    }
  });
}

TEST(DeviceMemory, AMappingThatFoundNoMemoryKeepsNobodyWaiting) {
  testing::Shared<Meeting> shared;
  testing::run_forked(2, [&](int rank) {
    ::alarm(60);  // Rather than wait for ever.
    Meeting& meeting = *shared;
    Side side(meeting, rank);
    if (rank == 0) {
      meeting.ref[0] = side.share(side.allocate(), kBytes);
      meeting.board.meet(2);
      meeting.board.meet(2);
      return;
    }
    meeting.board.meet(2);
    const auto maps_after = [&](int allocations) {
      const ScarceMemory scarce(1, ScarceMemory::kForGood, allocations);
      try {
        return side.imports.resolve(side.peer, meeting.ref[0], kBytes, 0).ok();
      } catch (const std::bad_alloc&) {
        return false;
      }
    };
    int allocations = 0;
    while (!maps_after(allocations)) ++allocations;
    EXPECT_GT(allocations, 3);
    meeting.board.meet(2);
  });
}

TEST(DeviceMemory, OfPeersIsLetGoWithTheCommunicatorThatUsedIt) {
  run_sides([](Side& side, Meeting& meeting, int rank) {
    std::vector<Member> members(2);
    for (const int member : {0, 1}) {
      members[static_cast<std::size_t>(member)].process = meeting.process[member];
      members[static_cast<std::size_t>(member)].descriptor_service = meeting.board.read(member);
    }
    std::optional<SharedBuffers> buffers(std::in_place, side.backend, 0, members);
    if (rank == 0) {
      std::byte* const memory = side.allocate();
      EXPECT_TRUE(buffers->add(memory, kBytes).ok());
      meeting.ref[0] = buffers->find(memory, kBytes);
    }
    meeting.board.meet(2);
    if (rank == 1) {
      const DeviceImports& imports = DeviceImports::of(side.backend);
      EXPECT_NE(must(buffers->resolve(0, meeting.ref[0], kBytes)), nullptr);
      EXPECT_EQ(imports.size(), 1u);
      buffers.reset();
      EXPECT_EQ(imports.size(), 0u) << "its owner need not say that it withdraws it";
    }
    meeting.board.meet(2);
  });
}

TEST(DeviceMemory, TheLeastRecentlyUsedGoesFirst) {
  testing::Shared<Meeting> shared;
  testing::run_forked(2, [&](int rank) {
    constexpr std::size_t kAllocations = 6, kMost = 4;
    Meeting& meeting = *shared;
    Side side(meeting, rank, kMost);
    if (rank == 0) {
      for (std::size_t i = 0; i < kAllocations; ++i) {
        std::byte* const memory = side.allocate();
        memory[0] = static_cast<std::byte>(i);
        meeting.ref[i] = side.share(memory, 100);
      }
      meeting.board.meet(2);
      meeting.board.meet(2);
      return;
    }
    meeting.board.meet(2);
    const auto base = [&](std::size_t i) {
      const DeviceLease lease = must(side.imports.resolve(side.peer, meeting.ref[i], 100, 0));
      EXPECT_EQ(lease.address[0], static_cast<std::byte>(i));
      return std::weak_ptr<const ImportedAllocation>(lease.allocation);
    };
    const auto zero = base(0), one = base(1);
    for (const std::size_t i : {2, 3, 0, 4}) static_cast<void>(base(i));
    EXPECT_EQ(side.imports.size(), kMost);
    EXPECT_FALSE(zero.expired()) << "used since";
    EXPECT_TRUE(one.expired());
    for (std::size_t i = 0; i < kAllocations; ++i) static_cast<void>(base(i));
    EXPECT_EQ(side.imports.size(), kMost);
    meeting.board.meet(2);
  });
}

TEST(DeviceMemory, RefusesWhatIsNoCard) {
  testing::run_forked(1, [](int) {
    HostBackend backend;
    DeviceExports exports(backend);
    DeviceImports imports(backend, exports);
    // A peer of the same user that offers nonsense under the right key.
    std::vector<Fd> nonsense;
    nonsense.push_back(must(make_memory_fd("nonsense", page_size())));
    must(offer_descriptors(DeviceExports::key(7, 9), std::move(nonsense)));
    const std::uint64_t stranger = process_token() + 1;
    const DeviceOwner owner{stranger, must(descriptor_service_name())};
    EXPECT_EQ(imports.resolve(owner, {stranger, 7, 0, 9}, 1, 0).status().message(),
              "a peer shows something that is no card of device memory");
    EXPECT_EQ(imports.resolve(owner, {stranger, 8, 0, 9}, 1, 0).status().code(), ErrorCode::internal);
    EXPECT_EQ(imports.resolve(owner, {stranger + 1, 7, 0, 9}, 1, 0).status().message(),
              "a peer names device memory of another process");
  });
}

}  // namespace
}  // namespace lockstep::internal
