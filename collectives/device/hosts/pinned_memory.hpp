// PinnedMemory: host memory that copies of a device and a network reach alike. Allocated before any stream
// waits: its allocation may itself wait for all streams.
#pragma once

#include <cstddef>
#include <memory>

#include "lib/device/backend.hpp"

namespace lockstep::internal {

class PinnedMemory {
 public:
  static Result<std::unique_ptr<PinnedMemory>> make(Backend& backend, std::size_t bytes) {
    auto memory = backend.allocate_pinned(bytes);
    if (!memory.ok()) return memory.status();
    return std::unique_ptr<PinnedMemory>(new PinnedMemory(backend, *memory, bytes));
  }
  /// Nothing uses it any more.
  ~PinnedMemory() { static_cast<void>(backend_.free_pinned(data_)); }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  PinnedMemory(Backend& backend, void* data, std::size_t bytes)
      : backend_(backend), data_(data), bytes_(bytes) {}
  Backend& backend_;
  void* const data_;
  const std::size_t bytes_;
};

}  // namespace lockstep::internal
