// In place of the system's functions and of operator new, which a test cannot run dry for one thread alone.
#include "tests/ddp/shortage.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
thread_local bool t_no_descriptors = false;
thread_local std::size_t t_none_from = kAny;

void* plain_memory(std::size_t bytes) {
  if (bytes >= t_none_from) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

extern "C" int memfd_create(const char* name, unsigned flags) noexcept {
  static const auto create = reinterpret_cast<decltype(&memfd_create)>(dlsym(RTLD_NEXT, "memfd_create"));
  if (!t_no_descriptors) return create(name, flags);
  errno = EMFILE;
  return -1;
}

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  static const auto take = reinterpret_cast<decltype(&aligned_alloc)>(dlsym(RTLD_NEXT, "aligned_alloc"));
  return bytes >= t_none_from ? nullptr : take(alignment, bytes);
}

void* operator new(std::size_t bytes) { return plain_memory(bytes); }
void* operator new[](std::size_t bytes) { return plain_memory(bytes); }
// All that delete gives back comes from here, or a sanitizer sees two allocators.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace lockstep::testing {

NoDescriptors::NoDescriptors(bool here) { t_no_descriptors = here; }
NoDescriptors::~NoDescriptors() { t_no_descriptors = false; }
NoMemoryFrom::NoMemoryFrom(std::size_t bytes, bool here) { t_none_from = here ? bytes : kAny; }
NoMemoryFrom::~NoMemoryFrom() { t_none_from = kAny; }

}  // namespace lockstep::testing
