// How the program of a rank is found and started, as execvp(3) does it.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/forked.hpp"
#include "tests/support/refused_call.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/tools/run_program.hpp"
#include "tools/run/child.hpp"
#include "tools/run/guardian.hpp"

namespace lockstep::run {
namespace {

using internal::Outcome;
using internal::TemporaryDirectory;
using internal::testing::run_forked;

/// A file that may be run.
std::string write_program(const TemporaryDirectory& directory, const std::string& name,
                          const std::string& text) {
  std::string path = directory.write(name, text);
  EXPECT_EQ(chmod(path.c_str(), 0755), 0);
  return path;
}

// PATH and the current directory belong to a whole process: each test is a child of its own.
TEST(RunChild, AnEmptyComponentOfPathIsTheCurrentDirectory) {
  const TemporaryDirectory directory;
  write_program(directory, "prog", "");
  run_forked(1, [&](int) {
    ASSERT_EQ(chdir(directory.path().c_str()), 0);
    for (const char* path : {"", ":", ":/nowhere", "/nowhere:", "/nowhere::/nowhere"}) {
      setenv("PATH", path, 1);
      auto found = find_program("prog");
      ASSERT_TRUE(found.ok()) << path << ": " << found.status().message();
      EXPECT_EQ(*found, "./prog");
    }
    setenv("PATH", "/nowhere", 1);
    EXPECT_EQ(find_program("prog").status().message(),
              "cannot find the program \"prog\" in PATH; did you mean ./prog?");
  });
}

TEST(RunChild, AProgramBehindAClosedFolderIsNamed) {
  const TemporaryDirectory directory;
  const std::string folder = directory.path() + "/closed";
  ASSERT_EQ(mkdir(folder.c_str(), 0), 0);
  run_forked(1, [&](int) {
    constexpr uid_t kNobody = 65534;
    const bool is_root = geteuid() == 0;  // To whom no folder is closed.
    ASSERT_TRUE(!is_root || setresuid(kNobody, kNobody, kNobody) == 0);
    EXPECT_EQ(find_program(folder + "/prog").status().message(),
              "cannot run " + folder + "/prog: Permission denied");
  });
}

/// From now on this process cannot look at others by descriptor, as in containers of before 2019.
bool refuse_pidfds() { return lockstep::testing::refuse_call(SYS_pidfd_open, ENOSYS); }

TEST(RunChild, WhatCannotBeWatchedIsNotLeftRunning) {
  run_forked(1, [](int) {
    ASSERT_TRUE(refuse_pidfds());
    ChildOptions options;
    options.command = {"/bin/sleep", "1000"};
    getrlimit(RLIMIT_NOFILE, &options.descriptors);
    EXPECT_EQ(start_child(options).status().message(), "pidfd_open: Function not implemented");
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "it is still there";
    EXPECT_EQ(errno, ECHILD);
  });
}

TEST(RunChild, ALimitOfProcessesIsNamed) {
  run_forked(1, [](int) {
    ChildOptions options;
    options.command = {"/bin/true"};
    getrlimit(RLIMIT_NOFILE, &options.descriptors);
    constexpr uid_t kNobody = 65534;
    const bool is_root = geteuid() == 0;  // For whom there is no limit.
    ASSERT_TRUE(!is_root || setresuid(kNobody, kNobody, kNobody) == 0);
    const rlimit none{0, 0};
    ASSERT_EQ(setrlimit(RLIMIT_NPROC, &none), 0);
    const std::string why =
        "no process could be started; raise `ulimit -u`, or the container's limit of processes: Resource "
        "temporarily unavailable";
    EXPECT_EQ(start_child(options).status().message(), why);
    EXPECT_EQ(Guardian::start().status().message(), why);
  });
}

TEST(RunChild, AScriptThatNamesNoInterpreterIsTheShells) {
  const TemporaryDirectory directory;
  const std::string script = write_program(directory, "script", "echo \"$#: $2\"\n");
  const Outcome outcome = internal::run({"-n", "1", script, "one", "two words"});
  EXPECT_EQ(outcome.output, "[0] 2: two words\n");
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.code, 0);
}

}  // namespace
}  // namespace lockstep::run
