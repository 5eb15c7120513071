// Memory beyond what the control group of the process allows is refused. Apart from memory_faults_test, whose
// own process uses the memory that these children use from their start.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "lib/memory/mapping.hpp"
#include "lockstep/error.hpp"
#include "lockstep/memory.hpp"
#include "tests/support/forked.hpp"

namespace lockstep::internal {
namespace {

/// Moves this process to a control group of its own with so much memory. False where it may not.
bool limit_memory(const std::string& bytes) {
  const std::string group = "/sys/fs/cgroup/memory/lockstep-test-" + std::to_string(getpid());
  return mkdir(group.c_str(), 0755) == 0 &&
         (std::ofstream(group + "/memory.limit_in_bytes") << bytes).flush() &&
         (std::ofstream(group + "/cgroup.procs") << getpid()).flush();
}

/// Of a control group of 64 MiB: else the kernel's SIGKILL ends it, once so many pages have been touched.
void run_in_little_memory(const std::function<void()>& body) {
  const std::vector<pid_t> child = testing::start_forked(1, [&](int) {
    if (!limit_memory("67108864")) GTEST_SKIP() << "no version 1 of control groups to be changed here";
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
  run_in_little_memory([] {
    constexpr std::size_t kPart = 24 << 20;
    void* const first = lockstep::allocate(kPart);
    void* const second = lockstep::allocate(kPart);
    try {
      static_cast<void>(lockstep::allocate(kPart));
      ADD_FAILURE() << "allocated";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    }
    lockstep::free(first);
    void* const other = lockstep::allocate(kPart + (4 << 20));
    lockstep::free(other);
    lockstep::free(second);
  });
}

}  // namespace
}  // namespace lockstep::internal
