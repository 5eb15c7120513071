// Device memory of the host backend crosses processes, in both forms.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "lib/device/host/host_backend.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "tests/device/small_allocations.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

struct Meeting {
  testing::Board board;
  LegacyHandle handle;
};

constexpr std::size_t kBytes = kLegacyBlock;

TEST(HostExport, ALegacyHandleIsOpenedElsewhereAndNotAfterTheFree) {
  testing::Shared<Meeting> shared;
  testing::run_forked(2, [&](int rank) {
    HostBackend backend;
    if (rank == 0) {
      auto* const memory = static_cast<std::byte*>(must(backend.allocate(0, kBytes, MemoryKind::plain)));
      std::memset(memory, 17, kBytes);
      MemoryExport exported = must(backend.export_memory(memory + 5));
      EXPECT_TRUE(exported.has_legacy);
      EXPECT_FALSE(exported.descriptor);
      EXPECT_EQ(exported.bytes, kBytes);
      shared->handle = exported.legacy;
      shared->board.meet(2);
      shared->board.meet(2);
      EXPECT_EQ(memory[kBytes - 1], std::byte{18});
      must(backend.free(memory));
      shared->board.meet(2);
      return shared->board.meet(2);
    }
    shared->board.meet(2);
    MemoryExport exported;
    exported.bytes = kBytes;
    exported.has_legacy = true;
    exported.legacy = shared->handle;
    auto* const mapped = static_cast<std::byte*>(must(backend.import_memory(exported)));
    EXPECT_EQ(mapped[kBytes - 1], std::byte{17});
    const Allocation found = must(backend.locate(mapped + 1));
    EXPECT_EQ(found.base, mapped);
    EXPECT_EQ(found.space, MemorySpace::device);
    EXPECT_EQ(backend.export_memory(mapped).status().code(), ErrorCode::not_supported);
    mapped[kBytes - 1] = std::byte{18};
    shared->board.meet(2);
    shared->board.meet(2);
    EXPECT_FALSE(backend.import_memory(exported).ok());  // Freed there.
    must(backend.close_imported(mapped));
    EXPECT_EQ(backend.close_imported(mapped).code(), ErrorCode::invalid_argument);
    shared->board.meet(2);
  });
}

TEST(HostExport, AllocationsBelowABlockShareItAndAreStaged) {
  HostBackend backend;
  std::byte* pieces[2];
  for (std::byte*& piece : pieces) {
    piece = static_cast<std::byte*>(must(backend.allocate(0, 10'000, MemoryKind::plain)));
    EXPECT_EQ(backend.export_memory(piece).status().code(), ErrorCode::not_supported);
    EXPECT_EQ(must(backend.locate(piece + 9'999)).base, piece);
  }
  EXPECT_EQ(pieces[1] - pieces[0], 10'240);
  for (std::byte* const piece : pieces) must(backend.free(piece));
}

TEST(HostExport, OnlyWhatFillsItsBlocksHasAHandle) {
  constexpr std::size_t kBlock = kLegacyBlock;
  constexpr std::uintptr_t kAt = 64 * kBlock;
  EXPECT_TRUE(fills_legacy_blocks(kAt, kBlock, kAt, kBlock));
  EXPECT_TRUE(fills_legacy_blocks(kAt, 2 * kBlock + 1, kAt, 3 * kBlock));
  EXPECT_TRUE(fills_legacy_blocks(kAt, kBlock, 0, 0)) << "the driver tells nothing";
  EXPECT_FALSE(fills_legacy_blocks(kAt, kBlock - 1, kAt, kBlock));
  EXPECT_FALSE(fills_legacy_blocks(kAt, kBlock, kAt, 2 * kBlock));
  EXPECT_FALSE(fills_legacy_blocks(kAt + 512, 2 * kBlock, kAt, 4 * kBlock));
}

TEST(HostExport, SmallAllocationsForPeersAreMappedSideBySide) {
  ::setenv("LOCKSTEP_DEVICE_BACKEND", "host", 1);
  testing::map_small_allocations_of_a_peer();
}

TEST(HostExport, AStreamWaitsForAnotherProcessOnSharedMemory) {
  testing::Shared<Meeting> shared;
  testing::run_forked(2, [&](int rank) {
    HostBackend backend;
    if (rank == 0) {
      auto* const word = static_cast<std::uint32_t*>(must(backend.allocate(0, 8, MemoryKind::shareable)));
      MemoryExport exported = must(backend.export_memory(word));
      EXPECT_FALSE(exported.has_legacy);
      std::vector<Fd> descriptors;
      descriptors.push_back(std::move(exported.descriptor));
      must(offer_descriptors("word", std::move(descriptors)));
      shared->board.post(0, must(descriptor_service_name()));
      must(backend.wait_value(word, 41, nullptr));
      must(backend.write_value(word + 1, 42, nullptr));
      must(backend.synchronize(nullptr));
      return shared->board.meet(2);
    }
    MemoryExport exported;
    exported.bytes = 8;
    exported.descriptor =
        std::move(must(fetch_descriptors(shared->board.read(0), "word", IfAbsent::wait, 10'000)).front());
    auto* const word = static_cast<std::uint32_t*>(must(backend.import_memory(exported)));
    must(backend.write_value(word, 41, nullptr));
    must(backend.wait_value(word + 1, 42, nullptr));
    must(backend.synchronize(nullptr));
    must(backend.close_imported(word));
    shared->board.meet(2);
  });
}

TEST(HostExport, APoolsMemoryIsNotExportable) {
  HostBackend backend;
  void* const memory = must(backend.allocate(0, kBytes, MemoryKind::pool));
  EXPECT_EQ(backend.export_memory(memory).status().code(), ErrorCode::not_supported);
  void* const pinned = must(backend.allocate_pinned(10));
  EXPECT_EQ(backend.export_memory(pinned).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(backend.import_memory({}).status().code(), ErrorCode::not_supported);
  MemoryExport hostile;
  hostile.bytes = kBytes;
  hostile.has_legacy = true;  // All zero.
  EXPECT_EQ(backend.import_memory(hostile).status().code(), ErrorCode::invalid_argument);
  must(backend.free(memory));
  must(backend.free_pinned(pinned));
}

}  // namespace
}  // namespace lockstep::internal
