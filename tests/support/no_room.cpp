#include "tests/support/no_room.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

namespace {
std::atomic<bool> g_no_room{false};
}

/// Stands before the C library's: refuses as the kernel does where a process has as many mappings as it may.
extern "C" void* mremap(void* old, std::size_t old_bytes, std::size_t bytes, int flags, ...) noexcept {
  va_list rest;
  va_start(rest, flags);
  void* target = va_arg(rest, void*);
  va_end(rest);
  if (g_no_room) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mremap, old, old_bytes, bytes, flags, target));
}

namespace lockstep::testing {

NoRoom::NoRoom() { g_no_room = true; }
NoRoom::~NoRoom() { g_no_room = false; }

}  // namespace lockstep::testing
