// DeviceExports: device memory of this process that others may map.
//
// An allocation is offered under a number that stays with its address, and under its generation, which tells
// a later allocation at the same address from it. The process's descriptor service hands out the card and,
// where the memory has one, its own descriptor: everything that this process has, the importer chooses.
// Sharing takes part in nothing; peers fetch on first use.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

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
  /// when it cannot be exported (pools, managed memory, memory of another process): its data have to be
  /// staged. invalid_argument when the range is not one of device memory, or runs over the end of its
  /// allocation.
  Result<std::optional<SegmentRef>> share(const void* pointer, std::size_t bytes);
  /// The last one withdraws the allocation: nobody maps it any more.
  void unshare(const SegmentRef& ref);
  /// Whether a living process still has this withdrawn allocation mapped; before it lets go the memory must
  /// not be freed.
  bool held(const SegmentRef& ref) const;
  /// This process's own address of a shared allocation and its device, for ranks that are threads of it.
  std::optional<Allocation> find(std::uint64_t segment, std::uint64_t generation) const;

  /// Under which the descriptor service offers an allocation.
  static std::string key(std::uint64_t segment, std::uint64_t generation);

 private:
  struct Shared {
    Allocation allocation;
    std::uint64_t number = 0;
    int users = 0;
    OwnedCard card;
  };
  Status offer(const Allocation& allocation, MemoryExport exported, Shared& shared);
  std::uint64_t number_of(std::byte* base);

  Backend& backend_;
  mutable std::mutex mutex_;
  std::map<std::byte*, std::uint64_t> numbers_;   ///< By base; kept, so that a number means one address.
  std::map<std::uint64_t, Shared> shared_;        ///< By generation.
  std::map<std::uint64_t, OwnedCard> withdrawn_;  ///< By generation, while they may be held.
};

}  // namespace lockstep::internal
