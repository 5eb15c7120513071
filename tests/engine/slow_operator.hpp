// An all_reduce in shared memory that moves all the time, and takes long.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <thread>

#include "collectives/engine/limits.hpp"
#include "lockstep/lockstep.hpp"

namespace lockstep::testing {

/// A user's operator that takes a millisecond, or more, for each block that a pass reduces.
inline CallOptions with_slow_operator() {
  CallOptions options;
  options.user_op.combine = [](const void*, void*, std::size_t bytes, void*) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(1'000'000 * bytes / internal::kReduceBlockBytes));
  };
  return options;
}

/// What two ranks reduce (as u8) so that each has so many blocks of its own, and waits for nobody between
/// them.
class SlowBuffer {
 public:
  explicit SlowBuffer(std::size_t blocks)
      : bytes_(2 * blocks * internal::kReduceBlockBytes), data_(new std::byte[bytes_]) {}
  std::byte* data() { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::byte[]> data_;  // Only time counts: nobody looks at it.
};

}  // namespace lockstep::testing
