#include "tests/support/no_room.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>

namespace {

using Syscall = long(long, ...);

std::atomic<bool> g_no_room{false};
std::atomic<Syscall*> g_syscall{nullptr};

/// The C library's. No static variable of a function: its guard may come here.
Syscall* real_syscall() {
  Syscall* found = g_syscall.load();
  if (found == nullptr) g_syscall = found = reinterpret_cast<Syscall*>(dlsym(RTLD_NEXT, "syscall"));
  return found;
}

}  // namespace

/// Stands before the C library's: refuses as the kernel does where a process has as many mappings as it may.
/// As that, it takes six arguments, however many there are.
extern "C" __attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept {
  long arguments[6];
  va_list rest;
  va_start(rest, number);
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_mremap && g_no_room) {
    errno = ENOMEM;
    return -1;
  }
  return real_syscall()(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                        arguments[5]);
}

namespace lockstep::testing {

NoRoom::NoRoom() { g_no_room = true; }
NoRoom::~NoRoom() { g_no_room = false; }

}  // namespace lockstep::testing
