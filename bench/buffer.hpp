// Memory for one side of a call, populated before anything is timed.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "lockstep/memory.hpp"

namespace lockstep::bench {

class Buffer {
 public:
  Buffer(std::size_t bytes, bool registered) : registered_(registered) {
    constexpr std::size_t kPage = 4096;
    const std::size_t rounded = (bytes + kPage) / kPage * kPage;  // never empty
    data_ = registered ? allocate(rounded) : std::aligned_alloc(kPage, rounded);
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_, 0, rounded);
  }
  ~Buffer() { registered_ ? lockstep::free(data_) : std::free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  bool registered_;
  void* data_;
};

}  // namespace lockstep::bench
