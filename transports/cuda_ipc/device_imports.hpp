// DeviceImports: device memory of other processes, mapped here.
//
// An allocation is mapped once for a process and device, however many communicators use it, and kept for
// later calls: until it is replaced by a newer generation at its address, withdrawn by its owner, pushed out
// by others, or its owner is gone. Who uses it holds a lease, so what is dropped stays mapped until the last
// user is through. An owner that is slow to answer keeps those waiting who ask for the same memory, nobody
// else.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>

#include "lib/device/backend.hpp"
#include "lib/memory/segment.hpp"
#include "transports/cuda_ipc/card.hpp"
#include "transports/cuda_ipc/device_exports.hpp"
#include "transports/cuda_ipc/limits.hpp"

namespace lockstep::internal {

/// One mapped allocation; unmapped by the destructor.
class ImportedAllocation {
 public:
  ~ImportedAllocation();
  ImportedAllocation(const ImportedAllocation&) = delete;
  ImportedAllocation& operator=(const ImportedAllocation&) = delete;
  std::byte* base() const { return base_; }
  std::size_t bytes() const { return bytes_; }
  bool withdrawn() const { return card_.has_value() && card_->withdrawn(); }

 private:
  friend class DeviceImports;
  ImportedAllocation(Backend& backend, int device) : backend_(backend), device_(device) {}
  Backend& backend_;
  const int device_;
  std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::optional<PeersCard> card_;     ///< Of other processes' memory.
  std::shared_ptr<const void> user_;  ///< Of this process's.
};

/// Bytes of a peer's memory, addressable while this lives.
struct DeviceLease {
  std::shared_ptr<const ImportedAllocation> allocation;
  std::byte* address = nullptr;
};

/// Where a peer's memory comes from.
struct DeviceOwner {
  std::uint64_t process = 0;  ///< Its process_token().
  std::string service;        ///< Name of its descriptor service.
};

/// Thread-safe. One for a backend and process: `of`.
class DeviceImports {
 public:
  /// Never destroyed.
  static DeviceImports& of(Backend& backend);
  explicit DeviceImports(Backend& backend, DeviceExports& own, std::size_t most = kMaxImportedAllocations)
      : backend_(backend), own_(own), most_(most) {}

  /// `device`'s address of `bytes` of `owner`'s memory at `ref`. not_supported: this device cannot reach it,
  /// stage the data. peer_lost: the owner is gone. internal: it has withdrawn the memory, or names what it
  /// never shared.
  Result<DeviceLease> resolve(const DeviceOwner& owner, const SegmentRef& ref, std::size_t bytes, int device);
  /// Lets go of everything of a process that died or left. Do this before its memory may be freed; leases
  /// that live on keep what they need.
  void drop_owner(std::uint64_t process);
  /// Lets go of one that nobody but the caller has a lease of.
  void drop_unused(const std::shared_ptr<const ImportedAllocation>& allocation);
  /// Lets go of what owners have withdrawn, so that they may free it.
  void drop_withdrawn();
  std::size_t size() const;

 private:
  using Key = std::tuple<std::uint64_t, std::uint64_t, int>;  ///< Process, segment, device.
  struct Entry {
    std::uint64_t generation = 0;
    std::uint64_t used = 0;  ///< On clock_.
    std::shared_ptr<const ImportedAllocation> allocation;
  };

  class Unlocked;

  Result<std::shared_ptr<const ImportedAllocation>> find_or_map(const DeviceOwner& owner,
                                                                const SegmentRef& ref, int device);
  std::shared_ptr<const ImportedAllocation> find(const Key& key, std::uint64_t generation);
  Result<std::shared_ptr<const ImportedAllocation>> map(const DeviceOwner& owner, const SegmentRef& ref,
                                                        int device);
  Result<std::shared_ptr<const ImportedAllocation>> own_memory(const SegmentRef& ref, int device);
  Status check_reach(int device, const std::array<std::uint8_t, 16>& uuid);
  Status check_reach(int device, int peer);
  void make_room();

  Backend& backend_;
  DeviceExports& own_;
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::uint64_t clock_ = 0;
  std::set<Key> mapping_;  ///< What a thread is mapping, without the lock.
  std::condition_variable mapped_;
};

}  // namespace lockstep::internal
