// The buckets of a DeviceReducer: blocks of device memory that peers may map.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp/bucket_places.hpp"
#include "lib/device/backend.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/device.hpp"

namespace lockstep::internal {

/// One block, cut into parts that begin on pages; a window of the communicator, zeroed. All ranks make the
/// same blocks in the same order, and every collective names the same part on all.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  /// `bytes` of each part. Throws Error(out_of_memory).
  DeviceBlock(Backend& backend, DeviceCommunicator& communicator, const std::vector<std::size_t>& bytes,
              DeviceStream stream);
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept;
  ~DeviceBlock();
  /// Null for an empty part.
  std::byte* part(std::size_t index) const { return parts_[index]; }
  std::size_t size() const { return parts_.size(); }

 private:
  DeviceCommunicator* communicator_ = nullptr;
  std::byte* block_ = nullptr;
  std::vector<std::byte*> parts_;
};

/// The memory of the buckets: a block for each plan. Zeroed at first.
class DeviceBuckets {
 public:
  /// Room for `more`, which covers parameters up to `parameters` - 1 that had no place yet; enqueues on
  /// `stream` that it becomes zero. Nothing moves. Throws Error(out_of_memory).
  void add(Backend& backend, DeviceCommunicator& communicator, const BucketPlan& more, std::size_t parameters,
           DeviceStream stream);

  const BucketPlaces::Place& place(std::size_t parameter) const { return places_.place(parameter); }
  std::byte* start_of(const BucketPlan::Bucket& bucket) const { return places_.start_of(bucket); }
  /// Where each bucket of a plan begins.
  std::vector<std::byte*> starts_of(const BucketPlan& plan) const;

 private:
  std::vector<DeviceBlock> blocks_;
  BucketPlaces places_;
};

}  // namespace lockstep::internal
