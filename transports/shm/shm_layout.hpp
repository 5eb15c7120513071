// The one segment that each member of a group makes, and every member maps. All zeros is the initial state of
// everything in it.
//
//   head | MemberControl | staging | ring controls | ring bytes
//
// Rings for every pair and channel have their place from the start, so that connecting needs no handshake;
// their pages (and only theirs) come with the first touch. A ring lies in the segment of the member that
// reads it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transports/domain.hpp"
#include "transports/shm/limits.hpp"
#include "transports/shm/shm_ring.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

struct SegmentHead {
  alignas(kLine) std::atomic<std::uint32_t> attached;  ///< 1: the owner has mapped every member's segment.
  std::atomic<std::uint32_t> complete;  ///< In member 0's segment, 1: it saw that every member has.
};

/// `bytes` rounded up so that the next part begins on a page: 64 KiB are the largest pages in use (aarch64),
/// a multiple of all others.
constexpr std::size_t round_up_part(std::size_t bytes) noexcept {
  constexpr std::size_t kPart = std::size_t{64} << 10;
  return (bytes + kPart - 1) / kPart * kPart;
}
inline constexpr std::size_t kStagingAt = round_up_part(sizeof(SegmentHead) + sizeof(MemberControl));
inline constexpr std::size_t kRingControlsAt = kStagingAt + round_up_part(kStagingBytes);

/// Where things lie in the segment of a member of a group of `size`.
class ShmLayout {
 public:
  explicit ShmLayout(int size) noexcept : size_(static_cast<std::size_t>(size)) {}

  std::size_t total_bytes() const noexcept { return rings_at() + rings() * kRingBytes; }
  /// What is populated at once: all but the rings' bytes.
  std::size_t populated_bytes() const noexcept { return rings_at(); }

  static SegmentHead& head(std::byte* segment) noexcept { return *reinterpret_cast<SegmentHead*>(segment); }
  static MemberControl& control(std::byte* segment) noexcept {
    return *reinterpret_cast<MemberControl*>(segment + sizeof(SegmentHead));
  }
  static std::byte* staging(std::byte* segment) noexcept { return segment + kStagingAt; }
  /// The ring that `writer` fills for the segment's owner.
  Ring ring(std::byte* segment, int writer, Channel channel) const noexcept {
    const std::size_t index =
        static_cast<std::size_t>(writer) * kChannels + static_cast<std::size_t>(channel);
    return {reinterpret_cast<RingControl*>(segment + kRingControlsAt) + index,
            segment + rings_at() + index * kRingBytes};
  }

 private:
  std::size_t rings() const noexcept { return size_ * kChannels; }
  std::size_t rings_at() const noexcept {
    return kRingControlsAt + round_up_part(rings() * sizeof(RingControl));
  }

  std::size_t size_;
};
static_assert(sizeof(SegmentHead) % alignof(MemberControl) == 0);

}  // namespace lockstep::internal
