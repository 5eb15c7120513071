// DeviceExports: device memory of this process that others may map.
//
// An allocation is offered under a number that stays with its address, and under its generation, which tells
// a later allocation at the same address from it. The process's descriptor service hands out the card and,
// where the memory has one, its own descriptor: everything that this process has, the importer chooses.
// Sharing takes part in nothing; peers fetch on first use.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/device/backend.hpp"
#include "lib/memory/segment.hpp"
#include "transports/cuda_ipc/card.hpp"

namespace lockstep::internal {

/// Thread-safe. One for a backend and process: `of`. A SegmentRef of device memory has the number as
/// `segment` and the allocation's generation.
class DeviceExports {
 public:
  /// Never destroyed.
  static DeviceExports& of(Backend& backend);
  explicit DeviceExports(Backend& backend) : backend_(backend) {}
  ~DeviceExports();
  DeviceExports(const DeviceExports&) = delete;
  DeviceExports& operator=(const DeviceExports&) = delete;

  /// Lets peers map the allocation in which [pointer, pointer + bytes) lies, until as many unshare(). Nothing
  /// when it cannot be exported (pools, managed memory, memory of another process), or while peers have
  /// mapped what was at its addresses before: its data have to be staged. invalid_argument when the range is
  /// not one of device memory, or runs over the end of its allocation.
  Result<std::optional<SegmentRef>> share(const void* pointer, std::size_t bytes);
  /// The last one withdraws the allocation: nobody maps it any more.
  void unshare(const SegmentRef& ref);
  /// Whether this withdrawn allocation is still mapped by a living process, or leased in this one; before all
  /// let go the memory must not be freed.
  bool held(const SegmentRef& ref) const;
  /// Frees an allocation of the backend's, which nobody shares any more: at once, or, while it is held, in a
  /// later call of share(), unshare() or retire(). For memory of the library's own, whose owner cannot wait.
  void retire(void* memory);

  /// A shared allocation of this process, for ranks that are threads of it, and what says that it is in use.
  struct Own {
    Allocation allocation;
    std::shared_ptr<const void> user;
  };
  std::optional<Own> find(std::uint64_t segment, std::uint64_t generation) const;

  /// Under which the descriptor service offers an allocation.
  static std::string key(std::uint64_t segment, std::uint64_t generation);

 private:
  /// How users of an allocation are told from nobody.
  struct Users {
    OwnedCard card;                                                    ///< Other processes.
    std::shared_ptr<const void> here = std::make_shared<const int>();  ///< Leases have copies of it.
    const std::byte* base = nullptr;                                   ///< Of what has a legacy handle.
    std::size_t bytes = 0;
    bool any() const { return here.use_count() > 1 || card.held(); }
  };
  struct Shared {
    Allocation allocation;
    int shares = 0;
    Users users;
  };
  /// Number and generation: what a driver counts as one buffer may be several mappings, each with a base.
  using Id = std::pair<std::uint64_t, std::uint64_t>;
  static Id id_of(const SegmentRef& ref) { return {ref.segment, ref.generation}; }
  Id id_of(const Allocation& allocation) { return {number_of(allocation.base), allocation.generation}; }
  Status offer(const Id& id, const Allocation& allocation, MemoryExport exported, Shared& shared);
  std::uint64_t number_of(std::byte* base);
  bool in_use(const Id& id) const;
  bool is_held_by_peers(const std::byte* base, std::size_t bytes) const;
  /// Frees at its end, which is to come after the lock's: to free waits for the device's streams, and they
  /// may wait for a rank of this process that comes to share memory.
  struct Unheld {
    explicit Unheld(Backend& backend) : owner(backend) {}
    ~Unheld();
    Unheld(const Unheld&) = delete;
    Unheld& operator=(const Unheld&) = delete;
    Backend& owner;
    std::vector<void*> memory;
  };
  void sweep(Unheld& unheld);  ///< Forgets what nobody holds any more.

  Backend& backend_;
  mutable std::mutex mutex_;
  std::map<std::byte*, std::uint64_t> numbers_;  ///< By base; kept, so that a number means one address.
  std::map<Id, Shared> shared_;
  std::map<Id, Users> withdrawn_;  ///< While they are held.
  std::map<Id, void*> retired_;    ///< To be freed.
};

}  // namespace lockstep::internal
