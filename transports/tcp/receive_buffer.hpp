// ReceiveBuffer: bytes that arrived and were not consumed yet, in one piece.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "lib/base/aligned_bytes.hpp"

namespace lockstep::internal {

/// Owns its memory, which is aligned to a cache line. Not thread-safe.
class ReceiveBuffer {
 public:
  explicit ReceiveBuffer(std::size_t capacity) : usual_capacity_(capacity) { reallocate(capacity); }

  std::size_t size() const { return end_ - begin_; }
  std::span<const std::byte> readable() const { return {data_.get() + begin_, size()}; }
  void consume(std::size_t bytes) {
    begin_ += bytes;
    if (begin_ < end_) return;
    begin_ = end_ = 0;
    if (capacity_ > usual_capacity_) reallocate(usual_capacity_);
  }

  /// Room for `bytes` (at most capacity() - size()) behind what is readable; moves it to the front where that
  /// is needed.
  std::span<std::byte> writable(std::size_t bytes) {
    if (capacity_ - end_ < bytes) move_to_front();
    return {data_.get() + end_, std::min(bytes, capacity_ - end_)};
  }
  void commit(std::size_t bytes) { end_ += bytes; }

  void append(std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(writable(bytes.size()).data(), bytes.data(), bytes.size());
    commit(bytes.size());
  }

  /// Makes readable() start at a multiple of `unit` (a power of two, at most 64).
  void align(std::size_t unit) {
    if (begin_ % unit != 0) move_to_front();
  }
  /// Puts `bytes` before what is readable. Capacity that this takes beyond the usual is given back when all
  /// is consumed.
  void prepend(std::span<const std::byte> bytes) {
    const std::size_t kept = size();
    if (capacity_ < kept + bytes.size()) reallocate(kept + bytes.size());
    if (kept > 0) std::memmove(data_.get() + bytes.size(), data_.get() + begin_, kept);
    if (!bytes.empty()) std::memcpy(data_.get(), bytes.data(), bytes.size());
    begin_ = 0;
    end_ = kept + bytes.size();
  }

 private:
  void move_to_front() {
    std::memmove(data_.get(), data_.get() + begin_, size());
    end_ -= begin_;
    begin_ = 0;
  }
  void reallocate(std::size_t capacity) {
    AlignedBytes larger = make_aligned(capacity);
    const std::size_t kept = size();
    if (kept > 0) std::memcpy(larger.get(), data_.get() + begin_, kept);
    data_ = std::move(larger);
    begin_ = 0;
    end_ = kept;
    capacity_ = capacity;
  }

  const std::size_t usual_capacity_;
  AlignedBytes data_;
  std::size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace lockstep::internal
