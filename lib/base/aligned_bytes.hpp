// AlignedBytes: memory for bulk data, aligned to a cache line, its contents undefined.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace lockstep::internal {

inline constexpr std::align_val_t kCacheLine{64};

struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kCacheLine); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;

inline AlignedBytes make_aligned(std::size_t bytes) {
  return AlignedBytes(new (kCacheLine) std::byte[bytes]);
}

}  // namespace lockstep::internal
