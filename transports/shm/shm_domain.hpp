// The members of a host in shared memory.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "lib/memory/descriptor_service.hpp"
#include "transports/domain.hpp"
#include "transports/shm/shm_group.hpp"
#include "transports/shm/shm_layout.hpp"

namespace lockstep::internal {

/// The contract is Domain's. Segments of a member stay mapped (shared with the process's other groups) until
/// kMaxMappedSegments others of that member were resolved, or there is no room for another and it was not
/// resolved since begin_resolving(). A resolved pointer is valid as long. A member that is a thread of this
/// process is addressed directly: its segments, and any memory named by direct_ref().
class ShmDomain final : public Domain {
 public:
  ShmDomain(int rank, std::vector<Member> members, std::vector<Attachment> attachments);

  std::byte* staging(int member) override { return ShmLayout::staging(segment(member)); }
  void begin_resolving() override { begun_ = clock_; }
  Result<std::byte*> resolve(int member, const SegmentRef& ref, std::size_t bytes) override;
  bool can_pull() override;
  bool is_readable(const void* address) override;
  Status pull(int member, std::uint64_t address, void* to, std::size_t bytes) override;
  void ring(int member) override;
  int bell_fd() override { return peer(rank()).bell->get(); }

  /// Answers that are late, which ring no bell.
  void append_poll_entries(std::vector<pollfd>& entries);

  /// The rings between this rank and `member`, for links.
  Ring ring_to(int member, Channel channel) { return layout_.ring(segment(member), rank(), channel); }
  Ring ring_from(int member, Channel channel) { return layout_.ring(segment(rank()), member, channel); }

 private:
  struct Mapped {
    std::uint64_t used = 0;  ///< The clock_ of its last use.
    SharedMapping mapping;
  };
  struct Peer {
    Member member;
    SharedMapping segment;
    std::shared_ptr<const Fd> bell;
    std::unordered_map<std::uint64_t, Mapped> mapped;  ///< By segment.
    std::optional<DescriptorFetch> fetch;              ///< Of one that was slow in coming.
  };

  Peer& peer(int member) { return peers_[static_cast<std::size_t>(member)]; }
  std::byte* segment(int member) { return peer(member).segment->data(); }
  Result<const Mapping*> mapped(Peer& peer, const SegmentRef& ref);
  Result<SharedMapping> fetch(Peer& peer, const SegmentRef& ref);
  Status read(int member, std::uint64_t address, void* to, std::size_t bytes);
  bool is_gone(int member);
  static void drop_least_recent(Peer& peer);
  bool drop_what_is_idle();

  const ShmLayout layout_;
  std::vector<Peer> peers_;
  std::uint64_t clock_ = 0;       // Segments resolved so far.
  std::uint64_t begun_ = 0;       // When the operation under way began to.
  std::optional<bool> can_pull_;  // Once it was asked.
};

}  // namespace lockstep::internal
