// What the reactor's tests stand on: event descriptors, and the end of what was posted.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <future>

#include "lib/net/fd.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {

inline Fd make_eventfd() { return Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

inline void write_eventfd(const Fd& fd) {
  const std::uint64_t one = 1;
  ASSERT_EQ(write(fd.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
}

inline void drain_eventfd(const Fd& fd) {
  std::uint64_t value = 0;
  [[maybe_unused]] const ssize_t got = read(fd.get(), &value, sizeof value);
}

/// Runs everything that was posted before.
inline void flush() {
  std::promise<void> done;
  Reactor::instance().post([&] { done.set_value(); });
  done.get_future().wait();
}

}  // namespace lockstep::internal
