// DeviceUndo: buckets as they were before a step changed them, so that a step that fails leaves them
// untouched.
#pragma once

#include <cstddef>
#include <vector>

#include "lib/device/backend.hpp"
#include "lockstep/ddp/bucket_plan.hpp"

namespace lockstep::internal {

class DeviceUndo {
 public:
  DeviceUndo(Backend& backend, int device) : backend_(backend), device_(device) {}
  ~DeviceUndo();
  DeviceUndo(const DeviceUndo&) = delete;
  DeviceUndo& operator=(const DeviceUndo&) = delete;

  /// Room for the buckets of `plan`. Nothing is on its way. Throws Error(out_of_memory).
  void use_plan(const BucketPlan& plan);

  /// Enqueues a copy of bucket `index`, which lies at `data`.
  void keep(std::size_t index, std::byte* data, std::size_t bytes, DeviceStream stream);
  /// Enqueues that the first `buckets` of the plan, as they were last kept, go back to where they came from.
  void restore(std::size_t buckets, DeviceStream stream);
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Place {  ///< Of a bucket in the block.
    std::size_t begin;
    std::byte* home = nullptr;
    std::size_t bytes = 0;
  };
  Backend& backend_;
  const int device_;
  std::byte* block_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<Place> places_;
};

}  // namespace lockstep::internal
