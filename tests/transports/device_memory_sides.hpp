// Two processes that share device memory of the host backend, for tests.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <stdexcept>

#include "lib/device/host/host_backend.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/must.hpp"
#include "transports/cuda_ipc/device_imports.hpp"

namespace lockstep::internal::testing {

inline constexpr std::size_t kBytes = kLegacyBlock;

/// What the processes of a test tell one another.
struct Meeting {
  testing::Board board;
  std::uint64_t process[2];
  std::array<SegmentRef, 300> ref;
};

/// One rank's side: rank 0 owns memory, rank 1 maps it.
struct Side {
  explicit Side(Meeting& meeting, int rank, std::size_t most = kMaxImportedAllocations)
      : imports(backend, exports, most) {
    meeting.process[rank] = process_token();
    meeting.board.post(rank, must(descriptor_service_name()));
    meeting.board.meet(2);
    peer = {meeting.process[1 - rank], meeting.board.read(1 - rank)};
  }
  std::byte* allocate(MemoryKind kind = MemoryKind::plain) {
    return static_cast<std::byte*>(must(backend.allocate(0, kBytes, kind)));
  }
  SegmentRef share(const void* memory, std::size_t bytes) {
    const std::optional<SegmentRef> ref = must(exports.share(memory, bytes));
    if (!ref) throw std::runtime_error("not exportable");
    return *ref;
  }

  HostBackend backend;
  DeviceExports exports{backend};
  DeviceImports imports;
  DeviceOwner peer;
};

/// Each side in a process of its own.
inline void run_sides(const std::function<void(Side& side, Meeting& meeting, int rank)>& body) {
  Shared<Meeting> shared;
  run_forked(2, [&](int rank) {
    Side side(*shared, rank);
    body(side, *shared, rank);
  });
}

}  // namespace lockstep::internal::testing
