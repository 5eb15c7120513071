// RegisteredBlock: memory of lockstep::allocate with an owner. A block holds a file descriptor, so what lives
// equally long shares one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/memory.hpp"

namespace lockstep::internal {

class RegisteredBlock {
 public:
  static constexpr std::size_t kAlignment = 64;

  RegisteredBlock() = default;
  /// Parts of the given sizes, each aligned, zeroed. Throws Error(out_of_memory).
  explicit RegisteredBlock(std::span<const std::size_t> bytes);

  /// Null for a part of no bytes in a block of none.
  std::byte* part(std::size_t index) const noexcept { return block_.get() + offsets_[index]; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* block) const noexcept { lockstep::free(block); }
  };
  std::unique_ptr<std::byte, Free> block_;
  std::vector<std::size_t> offsets_;
  std::size_t bytes_ = 0;
};

inline RegisteredBlock::RegisteredBlock(std::span<const std::size_t> bytes) {
  for (const std::size_t part : bytes) {
    offsets_.push_back(bytes_);
    bytes_ += (part + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (bytes_ > 0) block_.reset(static_cast<std::byte*>(lockstep::allocate(bytes_)));
}

}  // namespace lockstep::internal
