// The memory of the buckets: one block of lockstep::allocate, so that every transport reduces in it without
// copying.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// Owns the block. Zeroed at construction. Not thread-safe but for reading; different parameters may be
/// written by different threads.
class BucketMemory {
 public:
  /// The place of one parameter's gradient in its bucket.
  struct Place {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  /// Throws Error(out_of_memory). `plan` covers parameters 0 to `parameters` - 1.
  BucketMemory(const BucketPlan& plan, std::size_t parameters);

  void* bucket(std::size_t index) const noexcept { return buckets_[index]; }
  const Place& place(std::size_t parameter) const noexcept { return places_[parameter]; }
  /// Bytes of all gradients, without gaps.
  std::size_t gradient_bytes() const noexcept { return gradient_bytes_; }
  /// All gradients become zero.
  void clear() noexcept;

 private:
  struct Free {
    void operator()(std::byte* block) const noexcept;
  };
  std::unique_ptr<std::byte, Free> block_;
  std::vector<std::byte*> buckets_;
  std::vector<Place> places_;
  std::size_t gradient_bytes_ = 0;
};

}  // namespace lockstep::internal
