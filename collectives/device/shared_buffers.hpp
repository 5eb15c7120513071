// SharedBuffers: the registered buffers of one communicator, and those of its peers that operations use.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "lib/bootstrap/member.hpp"
#include "lib/device/backend.hpp"
#include "lib/memory/segment.hpp"
#include "transports/cuda_ipc/device_imports.hpp"

namespace lockstep::internal {

/// Thread-safe.
class SharedBuffers {
 public:
  SharedBuffers(Backend& backend, int device, const std::vector<Member>& members);
  /// Shares nothing any more.
  ~SharedBuffers();
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;

  /// Lets peers map [pointer, pointer + bytes), where it can be exported; otherwise find() does not find it.
  /// It may overlap what is here already; what lies within that is a use of it, until both are removed.
  /// Error: invalid_argument when that is not device memory.
  Status add(void* pointer, std::size_t bytes);
  /// One of those that begin there. invalid_argument when none does.
  Status remove(void* pointer);
  /// Whether one begins there.
  bool begins_at(const void* pointer) const;
  /// owner 0 where [pointer, pointer + bytes) lies in no buffer.
  SegmentRef find(const void* pointer, std::size_t bytes) const;

  /// This rank's address of `bytes` of `member`'s memory at `ref`, mapped on first use. Valid until
  /// forget_peers() or, if `for_ever`, as long as this object.
  Result<std::byte*> resolve(int member, const SegmentRef& ref, std::size_t bytes, bool for_ever = false);
  /// The same for as long as the lease lives.
  Result<DeviceLease> lease(int member, const SegmentRef& ref, std::size_t bytes);
  /// An operation has ended, whose stream still counts as held (HeldStreams): peers' memory that was
  /// withdrawn is let go, when no stream is.
  void forget_peers();
  /// The leases end, and with them mappings that nothing uses any more, when no stream is held.
  void let_go(std::vector<DeviceLease> leases);

 private:
  Result<bool> lies_over_mappings(const void* pointer, std::size_t bytes) const;
  Result<std::optional<SegmentRef>> share(const void* pointer, std::size_t bytes);
  std::optional<std::uintptr_t> whole_around(std::uintptr_t begin, std::size_t bytes) const;
  int take_parts_of(std::uintptr_t begin, std::size_t bytes);

  /// Mappings of peers' memory that this has used: while they are here, none of them ends where somebody lets
  /// go of it, but when no stream is held, for that waits for streams. What was withdrawn may end with its
  /// last lease: so leases end then, too.
  struct Kept {
    std::mutex mutex;
    std::set<std::shared_ptr<const ImportedAllocation>> allocations;
    std::atomic<bool> drop_is_put_off{false};
    void add(const std::shared_ptr<const ImportedAllocation>& allocation);
    /// Gives what it drops: mappings end outside the lock.
    template <typename Condition>
    std::vector<std::shared_ptr<const ImportedAllocation>> drop_if(Condition condition);
  };

  /// What peers may map: none lies within another, so that they end in the order in which they begin.
  struct Whole {
    std::size_t bytes = 0;
    SegmentRef ref;
    int uses = 0;
  };

  Backend& backend_;
  const int device_;
  DeviceExports& exports_;
  DeviceImports& imports_;
  std::vector<DeviceOwner> owners_;  ///< By member.
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Whole> wholes_;  ///< By address.
  /// What was added, by address, with where its whole begins; nothing for what peers cannot map.
  std::multimap<std::uintptr_t, std::optional<std::uintptr_t>> added_;
  std::vector<DeviceLease> leases_, kept_leases_;
  const std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

}  // namespace lockstep::internal
