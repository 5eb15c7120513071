#include "integrations/nccl/in_place.hpp"

#include <algorithm>

#include "lockstep/error.hpp"

namespace lockstep::nccl {
namespace {

/// The calling thread works on `device`, and afterwards on its own again.
class Selected {
 public:
  explicit Selected(int device) : before_(device::selected()) {
    if (before_ != device) device::select(device);
  }
  ~Selected() {
    try {
      device::select(before_);
    } catch (const Error&) {
      // It was selected before: there is nothing better to do.
    }
  }
  Selected(const Selected&) = delete;
  Selected& operator=(const Selected&) = delete;

 private:
  const int before_;
};

}  // namespace

InPlace::~InPlace() {
  try {
    if (passed_ != nullptr) device::destroy_event(passed_);
    for (void* const copy : copies_) free_device(copy);
  } catch (const Error&) {
    // The device is gone, and the memory with it.
  }
}

void InPlace::reserve(std::size_t bytes, int device) {
  if (passed_ == nullptr) passed_ = device::create_event();
  if (bytes <= bytes_) return;
  copies_.reserve(copies_.size() + 1);
  std::size_t larger = std::max(bytes, 2 * bytes_);
  try {
    copies_.push_back(allocate_device(larger, device));
  } catch (const Error&) {
    if (larger == bytes) throw;
    larger = bytes;
    copies_.push_back(allocate_device(larger, device));
  }
  bytes_ = larger;
}

void InPlace::all_to_all(DeviceCommunicator& ranks, void* buffer, std::size_t count, DataType type,
                         Stream stream) {
  const std::lock_guard lock(mutex_);
  const Selected selected(ranks.device());
  if (device::is_capturing(stream))
    throw Error(
        ErrorCode::not_supported,
        "ncclAlltoAll in place needs memory that a graph could not keep: capture it with two buffers");
  const std::size_t bytes = count * size_of(type) * static_cast<std::size_t>(ranks.size());
  reserve(bytes, ranks.device());
  device::wait(stream, passed_);
  device::copy(copies_.back(), buffer, bytes, stream);
  ranks.all_to_all(copies_.back(), buffer, count, type, stream);
  device::record(passed_, stream);
}

}  // namespace lockstep::nccl
