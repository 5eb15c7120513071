#include "tests/support/scarce_memory.hpp"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

thread_local std::size_t t_least = SIZE_MAX;
thread_local int t_times = 0, t_refused = 0, t_allowed = 0;

void* memory_or_null(std::size_t bytes, std::size_t alignment) {
  if (bytes >= t_least && t_allowed-- <= 0 && t_refused < t_times) {
    ++t_refused;
    return nullptr;
  }
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void* memory_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* memory = memory_or_null(bytes, alignment)) return memory;
  throw std::bad_alloc();
}

}  // namespace

namespace lockstep::testing {

ScarceMemory::ScarceMemory(std::size_t least, int times, int allowed) {
  t_least = least;
  t_times = times;
  t_refused = 0;
  t_allowed = allowed;
}
ScarceMemory::~ScarceMemory() { t_least = SIZE_MAX; }
int ScarceMemory::refused() const { return t_refused; }

}  // namespace lockstep::testing

void* operator new(std::size_t bytes) { return memory_or_throw(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return memory_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return operator new(bytes, alignment); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return memory_or_null(bytes, alignof(std::max_align_t));
}
// All that delete gives back comes from here, or a sanitizer sees two allocators.
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
