#include "integrations/nccl/in_place.hpp"

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
    free_device(copy_);
  } catch (const Error&) {
    // The device is gone, and the memory with it.
  }
}

void InPlace::reserve(std::size_t bytes, int device) {
  if (passed_ == nullptr) passed_ = device::create_event();
  if (bytes <= bytes_) return;
  free_device(copy_);
  copy_ = nullptr;
  bytes_ = 0;
  copy_ = allocate_device(bytes, device);
  bytes_ = bytes;
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
  device::copy(copy_, buffer, bytes, stream);
  ranks.all_to_all(copy_, buffer, count, type, stream);
  device::record(passed_, stream);
}

}  // namespace lockstep::nccl
