// A process that may map little more memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <fstream>

#include "lib/memory/mapping.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::testing {

/// Sanitizers map memory of their own: skip there.
inline constexpr bool kRoomCanRunOut = !kSanitized;

/// Leaves this process room for so many more bytes of mappings.
inline void leave_room_for(std::size_t bytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit room{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &room), 0);
  room.rlim_cur = pages * internal::page_size() + bytes;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &room), 0);
}

}  // namespace lockstep::testing
