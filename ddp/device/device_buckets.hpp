// The buckets of a DeviceReducer: one block of device memory that peers may map.
#pragma once

#include <cstddef>
#include <vector>

#include "lib/device/backend.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/device.hpp"

namespace lockstep::internal {

/// One block, cut into parts that begin on pages; registered with the communicator, zeroed.
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
  const std::vector<std::byte*>& parts() const { return parts_; }
  std::size_t size() const { return parts_.size(); }

 private:
  DeviceCommunicator* communicator_ = nullptr;
  std::byte* block_ = nullptr;
  std::vector<std::byte*> parts_;
};

/// Bytes of each bucket.
std::vector<std::size_t> bucket_bytes(const BucketPlan& plan);

/// Where each of `parameters` gradients begins.
std::vector<std::byte*> gradient_places(const BucketPlan& plan, const DeviceBlock& buckets,
                                        std::size_t parameters);

}  // namespace lockstep::internal
