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
  /// "1024 of 4096 in /job", or "none".
  std::string room() const {
    const auto least = memory_room(machine_.path());
    if (!least) return "none";
    const std::string folder = least->group.substr((machine_.path() + "/sys/fs/cgroup").size());
    return std::to_string(least->bytes) + " of " + std::to_string(least->limit) + " in " + folder;
  }

  const TemporaryDirectory machine_;
};

TEST_F(ControlGroup, OfVersion2) {
  is_in("0::/job/step\n");
  says("job/step/memory.max", "max");
  EXPECT_EQ(room(), "none");
  says("job/step/memory.max", "4096");
  says("job/step/memory.swap.max", "0");
  EXPECT_EQ(room(), "4096 of 4096 in /job/step");
}

TEST_F(ControlGroup, OneAboveMayAllowLess) {
  is_in("0::/job/step\n");
  for (const std::string group : {"job/step/", "job/"}) says(group + "memory.swap.max", "0");
  says("job/step/memory.max", "4096");
  says("job/memory.max", "1024");
  EXPECT_EQ(room(), "1024 of 1024 in /job");
}

TEST_F(ControlGroup, OfVersion1) {
  is_in("9:name=systemd:/\n4:memory:/job\n1:cpu:/\n0::/\n");
  says("memory/memory.limit_in_bytes", "9223372036854771712");
  says("memory/job/memory.limit_in_bytes", "4096");
  says("memory/job/memory.memsw.limit_in_bytes", "4096");
  EXPECT_EQ(room(), "4096 of 4096 in /memory/job");
}

// Which sees its own folder only, under the machine's name for it.
TEST_F(ControlGroup, OfAContainerWithoutANamespaceForThem) {
  is_in("4:memory:/docker/4711\n");
  says("memory/memory.limit_in_bytes", "4096");
  says("memory/memory.memsw.limit_in_bytes", "4096");
  EXPECT_EQ(room(), "4096 of 4096 in /memory/");
}

// What the kernel takes back first is not counted, and none of it is shared memory.
TEST_F(ControlGroup, LeavesWhatIsNotInUse) {
  is_in("0::/job\n");
  says("job/memory.max", "4096");
  says("job/memory.swap.max", "0");
  says("job/memory.current", "3000");
  EXPECT_EQ(room(), "4096 of 4096 in /job") << "nobody says how much of it are pages of files";
  says("job/memory.stat",
       "anon 1000\nfile 1900\nshmem 1400\ninactive_file 300\nactive_file 200\nslab_reclaimable 100");
  EXPECT_EQ(room(), "1696 of 4096 in /job");
  says("job/memory.swap.current", "96");
  EXPECT_EQ(room(), "1600 of 4096 in /job");
  says("job/memory.stat", "inactive_file 600\nswapcached 90");
  EXPECT_EQ(room(), "1690 of 4096 in /job") << "what was read back from swap was counted twice";
  says("job/memory.current", "5000");
  EXPECT_EQ(room(), "0 of 4096 in /job");
}

TEST_F(ControlGroup, OneAboveMayHaveLessLeft) {
  is_in("0::/job/step\n");
  for (const std::string group : {"job/step/", "job/"}) {
    says(group + "memory.swap.max", "0");
    says(group + "memory.stat", "inactive_file 0");
  }
  says("job/step/memory.max", "1024");
  says("job/step/memory.current", "24");
  says("job/memory.max", "4096");
  says("job/memory.current", "4000");
  EXPECT_EQ(room(), "96 of 4096 in /job");
}

TEST_F(ControlGroup, OfVersion1LeavesWhatIsNotInUse) {
  is_in("4:memory:/job\n");
  says("memory/job/memory.limit_in_bytes", "4096");
  says("memory/job/memory.memsw.limit_in_bytes", "4096");
  says("memory/job/memory.usage_in_bytes", "2500");
  says("memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 300\ntotal_active_file 200");
  EXPECT_EQ(room(), "2096 of 4096 in /memory/job");
  says("memory/job/memory.memsw.usage_in_bytes", "3000");
  EXPECT_EQ(room(), "1596 of 4096 in /memory/job");
  says("memory/job/memory.kmem.usage_in_bytes", "100");
  EXPECT_EQ(room(), "1696 of 4096 in /memory/job");
}

TEST_F(ControlGroup, OfAMachineThatHasNone) { EXPECT_EQ(room(), "none"); }

}  // namespace
}  // namespace lockstep::internal
