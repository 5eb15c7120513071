// Job in a process of the test's own: what cannot be seen from outside lockstep-run.
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "lib/net/descriptor_limit.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/tools/run_program.hpp"
#include "tools/run/job.hpp"

namespace lockstep::run {
namespace {

using internal::TemporaryDirectory;
using internal::testing::run_forked;
using internal::testing::wait_until;

/// What a job of one rank that runs `script` stands on.
struct JobParts {
  explicit JobParts(const std::string& script) : guardian(std::move(*Guardian::start())) {
    sigset_t none;
    sigemptyset(&none);
    signals = internal::Fd(signalfd(-1, &none, SFD_CLOEXEC));
    store = std::move(*internal::StoreServer::start({}));
    options.ranks = 1;
    options.command = {"/bin/sh", "-c", script};
  }
  internal::Status start(Job& job) const {
    return job.start(new_job(1, store->address(), "secret", "job"), internal::raise_descriptor_limit());
  }

  RunOptions options;
  std::optional<Guardian> guardian;
  internal::Fd signals;
  std::unique_ptr<internal::StoreServer> store;
};

TEST(RunJob, ARankThatSomebodyElseReapedHasEnded) {
  const TemporaryDirectory directory;
  run_forked(1, [&](int) {
    JobParts parts("while [ ! -e " + directory.path() + "/go ]; do sleep 0.01; done");
    Job job(parts.options, *parts.guardian, *parts.store, parts.signals);
    ASSERT_TRUE(parts.start(job).ok());
    signal(SIGCHLD, SIG_IGN);  // The kernel reaps it.
    directory.write("go", "");
    EXPECT_EQ(job.run(), 127);
  });
}

/// A process with this number, which leads a group; nothing where that cannot be had.
std::optional<pid_t> start_group_numbered(pid_t number) {
  clone_args args{};
  args.exit_signal = SIGCHLD;
  args.set_tid = reinterpret_cast<std::uint64_t>(&number);
  args.set_tid_size = 1;
  const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &args, sizeof args));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);  // Else the guardian waits for this one, too.
    for (;;) pause();
  }
  if (pid < 0) return std::nullopt;
  EXPECT_EQ(setpgid(pid, pid), 0);
  return pid;
}

// The number of a rank that was killed and reaped may be another's when the guardian ends.
TEST(RunJob, TheGuardianForgetsRanksThatTheJobKilled) {
  const TemporaryDirectory directory;
  const internal::testing::Shared<std::atomic<bool>> tried;
  run_forked(1, [&](int) {
    const std::string file = directory.path() + "/pid";
    JobParts parts("echo $$ >" + file + "; exec sleep 1000");
    pid_t rank = 0;
    {
      Job job(parts.options, *parts.guardian, *parts.store, parts.signals);
      ASSERT_TRUE(parts.start(job).ok());
      wait_until([&] { return internal::read_file(file).ends_with('\n'); });
      rank = std::stoi(internal::read_file(file));
    }
    const auto other = start_group_numbered(rank);
    parts.guardian.reset();
    if (!other) return;
    tried->store(true);
    EXPECT_EQ(waitpid(*other, nullptr, WNOHANG), 0) << "the guardian killed it";
    kill(*other, SIGKILL);
    waitpid(*other, nullptr, 0);
  });
  if (!tried->load()) GTEST_SKIP() << "only root chooses numbers of processes, and somebody may be faster";
}

}  // namespace
}  // namespace lockstep::run
