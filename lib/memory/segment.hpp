// Registered memory: process-level memfd segments that local peers can map.
//
// A segment is the memory of one allocate() or register_buffer() block. Its descriptor is offered to this
// user's processes by the descriptor service under segment_key(); nothing has a name in the file system, so
// nothing outlives the processes that hold it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Where a piece of memory lies in terms that a peer on this host understands. Fixed size: travels through
/// shared memory.
struct SegmentRef {
  std::uint64_t owner = 0;  ///< The owner's process_token(), not its pid; 0 = not addressable by peers.
  /// Unique in the owner, never reused; 0 = plain memory of the owner's process, see direct_ref().
  std::uint64_t segment = 0;
  std::uint64_t offset = 0;  ///< Bytes from the segment's start; of plain memory its address.
  /// Of device memory, whose numbers stay with their addresses (DeviceExports); 0 of the host's.
  std::uint64_t generation = 0;
  bool operator==(const SegmentRef&) const = default;
};

/// This process's random token (!= 0). A forked child has its own.
std::uint64_t process_token() noexcept;
/// Where it lies: who reads it there in the memory of some process has found this one. Pids come again, and
/// exec keeps them; a forked child's memory has another token there.
std::uint64_t process_token_address() noexcept;

/// The segment that holds all of [pointer, pointer + bytes), or nothing. Lock-free, no allocation,
/// thread-safe.
std::optional<SegmentRef> find_segment(const void* pointer, std::size_t bytes) noexcept;

/// Any memory of this process, registered or not, for ranks that are threads of it.
SegmentRef direct_ref(const void* pointer) noexcept;

/// This process's address of byte `ref.offset` of its own segment or plain memory (ref.owner ==
/// process_token()), when `bytes` from there on lie in the segment; nullptr when they do not, or when the
/// segment is gone. One of which pages were made private is there still: peers that were told of it go on
/// with the rest. Thread-safe.
std::byte* own_address(const SegmentRef& ref, std::size_t bytes) noexcept;

/// Gives a peer's revenant writes nowhere to go: the pages of [pointer, pointer + bytes) become this
/// process's own, contents kept. Used when a writer neither acknowledged a revoke nor died. Other threads may
/// write to the block meanwhile, and peers to its other pages; but find_segment() knows nothing of it any
/// more, since what lies in it is in two memories. Fails with invalid_argument when it is not in one block of
/// registered memory.
Status make_private(const void* pointer, std::size_t bytes);

/// What is_private() looks at first: whether pages were ever made private in this process. Set by the heap.
inline std::atomic<bool> private_pages_exist{false};
/// And then, under the heap's lock.
bool has_private_page(const void* pointer, std::size_t bytes) noexcept;

/// Whether a page of [pointer, pointer + bytes) was made private: what peers did to it since its segment was
/// offered may have been lost. Costs a load where no page ever was.
inline bool is_private(const void* pointer, std::size_t bytes) noexcept {
  return private_pages_exist.load(std::memory_order_seq_cst) && has_private_page(pointer, bytes);
}

/// The key under which the owner's descriptor service offers a segment's memory.
std::string segment_key(std::uint64_t segment);

}  // namespace lockstep::internal
