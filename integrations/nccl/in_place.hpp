// ncclAlltoAll with one buffer for both sides, which lockstep's all_to_all has not: through a copy of the
// input.
#pragma once

#include <cstddef>
#include <mutex>

#include "lockstep/device.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::nccl {

/// Keeps the memory of the largest call for the next. Thread-safe. Not in graphs.
class InPlace {
 public:
  InPlace() = default;
  ~InPlace();
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;

  void all_to_all(DeviceCommunicator& ranks, void* buffer, std::size_t count, DataType type, Stream stream);

 private:
  void reserve(std::size_t bytes, int device);

  std::mutex mutex_;
  void* copy_ = nullptr;
  std::size_t bytes_ = 0;
  device::Event passed_ = nullptr;  ///< By the last call: streams of later ones wait for it.
};

}  // namespace lockstep::nccl
