// ncclAlltoAll with one buffer for both sides, which lockstep's all_to_all has not: through a copy of the
// input.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "lockstep/device.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::nccl {

/// Keeps the memory of the largest call for the next, and of smaller ones before it as well: to free waits
/// for whatever runs on the device, which may be a call of another rank that waits for one that this thread
/// has yet to make. Each is twice as large as the one before, where there is as much, so all of them are less
/// than four times what the largest call needs. Thread-safe. Not in graphs.
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
  std::vector<void*> copies_;       ///< The last is in use.
  std::size_t bytes_ = 0;           ///< Of the last.
  device::Event passed_ = nullptr;  ///< By the last call: streams of later ones wait for it.
};

}  // namespace lockstep::nccl
