// Two small allocations of one process are open in another at the same time.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <vector>

#include "lib/device/backend.hpp"
#include "lockstep/device.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal::testing {

struct SmallAllocations {
  Board board;
  std::atomic<bool> device;  ///< There is one.
  std::array<LegacyHandle, 2> handles;
  std::array<std::size_t, 2> bytes;
};

/// Of LOCKSTEP_DEVICE_BACKEND's; false where it has no device.
inline bool map_small_allocations_of_a_peer() {
  constexpr std::size_t kBytes = 10'000;
  Shared<SmallAllocations> shared;
  run_forked(2, [&](int rank) {
    Result<Backend*> opened = device_backend();
    if (!opened.ok()) return;  // On both.
    Backend& backend = **opened;
    must(backend.select(0));
    shared->device.store(true);
    std::array<void*, 2> memory{};
    for (std::size_t i = 0; i < 2 && rank == 0; ++i) {
      memory[i] = allocate_device(kBytes, 0);
      must(backend.fill(memory[i], static_cast<std::uint8_t>(i + 1), kBytes, nullptr));
      must(backend.synchronize(nullptr));
      const MemoryExport exported = must(backend.export_memory(memory[i]));
      EXPECT_EQ(must(backend.locate(memory[i])).base, memory[i]) << "a handle is of the whole";
      shared->handles[i] = exported.legacy;
      shared->bytes[i] = exported.bytes;
    }
    shared->board.meet(2);
    for (std::size_t i = 0; i < 2 && rank == 1; ++i) {
      MemoryExport exported;
      exported.bytes = shared->bytes[i];
      exported.has_legacy = true;
      exported.legacy = shared->handles[i];
      memory[i] = must(backend.import_memory(exported));
    }
    for (std::size_t i = 0; i < 2 && rank == 1; ++i) {
      std::vector<std::uint8_t> bytes(kBytes);
      must(backend.copy(bytes.data(), memory[i], kBytes, nullptr));
      must(backend.synchronize(nullptr));
      EXPECT_EQ(bytes, std::vector<std::uint8_t>(kBytes, static_cast<std::uint8_t>(i + 1)));
    }
    for (std::size_t i = 0; i < 2 && rank == 1; ++i) must(backend.close_imported(memory[i]));
    shared->board.meet(2);
    for (std::size_t i = 0; i < 2 && rank == 0; ++i) free_device(memory[i]);
  });
  return shared->device.load();
}

}  // namespace lockstep::internal::testing
