// TransitMemory: what passes between hosts passes through it. Allocated before any stream waits: an
// allocation may itself wait for all streams.
#pragma once

#include <cstddef>
#include <memory>

#include "lib/device/backend.hpp"

namespace lockstep::internal {

class TransitMemory {
 public:
  /// Host memory that copies of a device and a network reach alike.
  static Result<std::unique_ptr<TransitMemory>> pinned(Backend& backend, std::size_t bytes) {
    return hold(backend, backend.allocate_pinned(bytes), bytes, &Backend::free_pinned);
  }
  static Result<std::unique_ptr<TransitMemory>> on_device(Backend& backend, int device, std::size_t bytes) {
    return hold(backend, backend.allocate(device, bytes), bytes, &Backend::free);
  }
  /// Nothing uses it any more.
  ~TransitMemory() { static_cast<void>((backend_.*free_)(data_)); }
  TransitMemory(const TransitMemory&) = delete;
  TransitMemory& operator=(const TransitMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  using Free = Status (Backend::*)(void*);
  static Result<std::unique_ptr<TransitMemory>> hold(Backend& backend, Result<void*> data, std::size_t bytes,
                                                     Free free) {
    if (!data.ok()) return data.status();
    return std::unique_ptr<TransitMemory>(new TransitMemory(backend, *data, bytes, free));
  }
  TransitMemory(Backend& backend, void* data, std::size_t bytes, Free free)
      : backend_(backend), data_(data), bytes_(bytes), free_(free) {}
  Backend& backend_;
  void* const data_;
  const std::size_t bytes_;
  const Free free_;
};

}  // namespace lockstep::internal
