// Memory that all ranks of a floor map by name, and flags in it.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/peers/board.hpp"

namespace floors {

/// A file in memory, mapped and populated. The first to come creates it.
class SharedFile {
 public:
  SharedFile(const std::string& path, std::size_t bytes);
  SharedFile(SharedFile&& other) noexcept;
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  std::size_t bytes_;
};

/// One rank's progress; what fits beside it in its cache line travels with it.
struct alignas(128) Flag {
  std::atomic<std::uint64_t> value;
  char payload[56];
};
inline constexpr std::size_t kPayload = 40;

inline void wait_for(const Flag& flag, std::uint64_t value, int spins) {
  for (int spin = 0; flag.value.load(std::memory_order_acquire) < value;) {
    if (++spin > spins) {
      sched_yield();
      spin = 0;
    } else {
      peers::relax();
    }
  }
}

}  // namespace floors
