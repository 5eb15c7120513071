// Memory beyond what the control group of the process allows is refused. Apart from memory_faults_test, whose
// own process uses the memory that these children use from their start.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lib/base/control_group.hpp"
#include "lib/memory/mapping.hpp"
#include "lockstep/error.hpp"
#include "lockstep/memory.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kLimit = 64 << 20;

/// Moves this process to a control group of its own with so much memory, swap included. False where it may
/// not.
bool limit_memory() {
  const std::string group = "/sys/fs/cgroup/memory/lockstep-test-" + std::to_string(getpid());
  const auto write = [&](const char* file, auto value) {
    return static_cast<bool>((std::ofstream(group + file) << value).flush());
  };
  if (mkdir(group.c_str(), 0755) != 0 || !write("/memory.limit_in_bytes", kLimit)) return false;
  write("/memory.memsw.limit_in_bytes", kLimit);  // Where swap is counted.
  if (!write("/cgroup.procs", getpid())) return false;
  const auto room = memory_room();
  return room && room->limit == kLimit;
}

/// In a control group of 64 MiB: whatever touches more than that is ended by the kernel's SIGKILL.
void run_in_little_memory(const std::function<void()>& body) {
  const std::vector<pid_t> child = testing::start_forked(1, [&](int) {
    if (!limit_memory()) GTEST_SKIP() << "no version 1 of control groups to be changed here";
    body();
  });
  EXPECT_EQ(testing::wait_for(child.front()), 0);
  rmdir(("/sys/fs/cgroup/memory/lockstep-test-" + std::to_string(child.front())).c_str());
}

TEST(LittleMemory, IsRefused) {
  run_in_little_memory([] {
    const auto refused = make_memory_fd("test", 128 << 20);
    EXPECT_EQ(refused.status().code(), ErrorCode::out_of_memory);
    EXPECT_NE(refused.status().message().find(" of 67108864): give this container or "), std::string::npos)
        << refused.status().message();
    EXPECT_TRUE(make_memory_fd("test", 8 << 20).ok());
  });
}

// Where each alone is within it. What was freed, and is kept for the same size, makes room for another one.
TEST(LittleMemory, IsRefusedBesideWhatIsInUse) {
  if (lockstep::testing::kSanitized) GTEST_SKIP() << "sanitizers have memory of their own";
  run_in_little_memory([] {
    constexpr std::size_t kPart = 24 << 20;
    void* const first = lockstep::allocate(kPart);
    void* const second = lockstep::allocate(kPart);
    const Error error = lockstep::testing::thrown_by([&] { static_cast<void>(lockstep::allocate(kPart)); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    lockstep::free(first);
    void* const other = lockstep::allocate(kPart + (4 << 20));
    lockstep::free(other);
    lockstep::free(second);
  });
}

TEST(LittleMemory, WhatIsKeptMakesRoomForWhatIsRegistered) {
  if (lockstep::testing::kSanitized) GTEST_SKIP() << "sanitizers have memory of their own";
  run_in_little_memory([] {
    constexpr std::size_t kPart = 24 << 20;
    auto* const own = static_cast<std::byte*>(std::aligned_alloc(4096, kPart));
    std::memset(own, 1, kPart);
    lockstep::free(lockstep::allocate(kPart));  // Kept for the next of its size.
    lockstep::register_buffer(own, kPart);
    EXPECT_EQ(own[kPart - 1], std::byte{1});
    lockstep::deregister_buffer(own);
    std::free(own);
  });
}

}  // namespace
}  // namespace lockstep::internal
