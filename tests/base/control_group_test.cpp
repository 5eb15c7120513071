// The memory that control groups leave a process, as their files say it.
#include "lib/base/control_group.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

class ControlGroup : public ::testing::Test {
 protected:
  void is_in(const std::string& groups) { machine_.write("proc/self/cgroup", groups); }
  /// Of the folder of a control group.
  void says(const std::string& file, const std::string& text) {
    machine_.write("sys/fs/cgroup/" + file, text + "\n");
  }
  /// "4096 in /job", or "none".
  std::string limit() const {
    const auto least = memory_limit(machine_.path());
    if (!least) return "none";
    const std::string folder = least->group.substr((machine_.path() + "/sys/fs/cgroup").size());
    return std::to_string(least->bytes) + " in " + folder;
  }

  const TemporaryDirectory machine_;
};

TEST_F(ControlGroup, OfVersion2) {
  is_in("0::/job/step\n");
  says("job/step/memory.max", "max");
  EXPECT_EQ(limit(), "none");
  says("job/step/memory.max", "4096");
  says("job/step/memory.swap.max", "0");
  EXPECT_EQ(limit(), "4096 in /job/step");
}

TEST_F(ControlGroup, OneAboveMayAllowLess) {
  is_in("0::/job/step\n");
  for (const std::string group : {"job/step/", "job/"}) says(group + "memory.swap.max", "0");
  says("job/step/memory.max", "4096");
  says("job/memory.max", "1024");
  EXPECT_EQ(limit(), "1024 in /job");
}

TEST_F(ControlGroup, OfVersion1) {
  is_in("9:name=systemd:/\n4:memory:/job\n1:cpu:/\n0::/\n");
  says("memory/memory.limit_in_bytes", "9223372036854771712");
  says("memory/job/memory.limit_in_bytes", "4096");
  says("memory/job/memory.memsw.limit_in_bytes", "4096");
  EXPECT_EQ(limit(), "4096 in /memory/job");
}

// Which sees its own folder only, under the machine's name for it.
TEST_F(ControlGroup, OfAContainerWithoutANamespaceForThem) {
  is_in("4:memory:/docker/4711\n");
  says("memory/memory.limit_in_bytes", "4096");
  says("memory/memory.memsw.limit_in_bytes", "4096");
  EXPECT_EQ(limit(), "4096 in /memory/");
}

TEST_F(ControlGroup, OfAMachineThatHasNone) { EXPECT_EQ(limit(), "none"); }

}  // namespace
}  // namespace lockstep::internal
