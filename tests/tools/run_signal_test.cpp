// Signals to lockstep-run, and that nothing is left behind however it ends.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <sstream>

#include "lib/base/env.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/tools/run_program.hpp"

namespace lockstep::internal {
namespace {

TEST(Run, SignalsArePassedOn) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT, SIGINT, SIGTERM}) {
    const std::string name = sigabbrev_np(signal);
    ChildProcess process = start(
        {"-n", "2", "/bin/sh", "-c",
         "trap 'echo got " + name + "; exit 0' " + name + "; echo ready; while :; do sleep 0.01; done"});
    process.read_line();
    process.read_line();
    process.kill(signal);
    EXPECT_EQ(sorted(process.read_output()), "[0] got " + name + "\n[1] got " + name + "\n");
    EXPECT_EQ(exit_code(process.wait()), 0);
  }
}

// As nohup and jobs in the background of a script have it.
TEST(Run, SignalsIgnoredAtTheStartStayIgnored) {
  const Outcome outcome = run_in_shell(
      "trap '' HUP INT; exec $RUN -n 1 --grace 0s /bin/sh -c "
      "'kill -HUP $PPID; kill -INT $PPID; sleep 0.5; echo alive'");
  EXPECT_EQ(outcome.output, "[0] alive\n");
  EXPECT_EQ(outcome.code, 0);
}

/// One rank that says so when it gets a signal, and lives on.
ChildProcess start_deaf(const std::string& grace) {
  ChildProcess process = start({"-n", "1", "--grace", grace, "/bin/sh", "-c",
                                "for s in INT TERM HUP QUIT; do trap \"echo $s\" $s; done; "
                                "trap 'exit 5' USR1; echo ready; while :; do sleep 0.01; done"});
  EXPECT_EQ(process.read_line(), "[0] ready");
  return process;
}

TEST(Run, SecondInterruptKillsAtOnce) {
  ChildProcess process = start_deaf("1000s");
  process.kill(SIGINT);
  EXPECT_EQ(process.read_line(), "[0] INT");
  sleep_for(std::chrono::milliseconds(1100));  // Sooner it is the same one.
  process.kill(SIGINT);
  EXPECT_EQ(exit_code(process.wait()), 128 + SIGKILL);
}

TEST(Run, StopsAndContinuesWithItsRanks) {
  ChildProcess process = start({"-n", "1", "/bin/sh", "-c", "echo $$; exec sleep 1000"});
  const pid_t rank = std::stoi(process.read_line().substr(4));
  process.kill(SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(process.pid(), &status, WUNTRACED), process.pid());
  EXPECT_TRUE(WIFSTOPPED(status));
  wait_for_state(rank, 'T');
  process.kill(SIGCONT);
  process.kill(SIGUSR1);
  EXPECT_EQ(exit_code(process.wait()), 128 + SIGUSR1);
}

// GNU timeout sends its signal twice; schedulers send SIGTERM, then SIGHUP.
TEST(Run, RepeatedRequestsToEndLeaveTheGraceTime) {
  ChildProcess process = start_deaf("1000s");
  for (const int signal : {SIGTERM, SIGTERM, SIGHUP, SIGTERM, SIGHUP}) {
    process.kill(signal);
    EXPECT_EQ(process.read_line(), "[0] " + std::string(sigabbrev_np(signal)));
  }
  process.kill(SIGUSR1);
  EXPECT_EQ(exit_code(process.wait()), 5);
}

TEST(Run, KeysPressedTogetherAreOneRequest) {
  ChildProcess process = start_deaf("1000s");
  process.kill(SIGSTOP);  // What comes now is there together when it goes on.
  wait_for_state(process.pid(), 'T');
  for (const int signal : {SIGINT, SIGQUIT, SIGCONT}) process.kill(signal);
  EXPECT_EQ(sorted(process.read_line() + "\n" + process.read_line() + "\n"), "[0] INT\n[0] QUIT\n");
  process.kill(SIGUSR1);
  EXPECT_EQ(exit_code(process.wait()), 5);
}

TEST(Run, RepeatedRequestsToEndDoNotLengthenTheGraceTime) {
  ChildProcess process = start_deaf("1s");
  const EndWatch watch(process.pid());
  for (int i = 0; i < 600 && !watch.ended(100); ++i) process.kill(SIGTERM);
  EXPECT_TRUE(watch.ended(0));
  EXPECT_EQ(exit_code(process.wait()), 128 + SIGKILL);
}

/// Ranks and a grandchild of each, as their output names them.
std::vector<pid_t> read_pids(ChildProcess& process, int ranks) {
  std::vector<pid_t> pids;
  for (int i = 0; i < ranks; ++i) {
    std::istringstream words(process.read_line());
    std::string mark;
    pid_t rank = 0, grandchild = 0;
    words >> mark >> rank >> grandchild;
    EXPECT_GT(grandchild, 0);
    pids.insert(pids.end(), {rank, grandchild});
  }
  return pids;
}

const char* kWithGrandchild = "sleep 1000 & echo $$ $!; wait";

TEST(Run, NothingOutlivesAKilledLauncher) {
  ChildProcess process = start({"-n", "3", "/bin/sh", "-c", kWithGrandchild});
  std::vector<EndWatch> watches;
  for (const pid_t pid : read_pids(process, 3)) watches.emplace_back(pid);
  process.kill(SIGKILL);
  for (const EndWatch& watch : watches) EXPECT_TRUE(watch.ended());
  EXPECT_EQ(exit_code(process.wait()), 128 + SIGKILL);
  EXPECT_EQ(process.read_output(), "");  // The guardian held no end of the pipe.
}

// What lockstep-run opens must not take the numbers of closed streams: the guardian's pipe was lost there.
TEST(Run, NothingOutlivesAKilledLauncherWithoutStandardInput) {
  TemporaryDirectory directory;
  const std::string pids = directory.path() + "/pids";
  ChildProcess process({"/bin/sh", "-c",
                        std::string("exec ") + LOCKSTEP_RUN +
                            " -n 1 /bin/sh -c 'sleep 1000 & echo $$ $! >&2; wait' 0<&- 1>&- 2>" + pids},
                       kEnvironment);
  pid_t rank = 0, grandchild = 0;
  for (int look = 0; grandchild == 0 && look < 6000; ++look) {
    std::istringstream words(read_file(pids));
    std::string mark, line;
    if (std::getline(words, line) && !words.eof()) std::istringstream(line) >> mark >> rank >> grandchild;
    sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_GT(grandchild, 0);
  const EndWatch watches[] = {EndWatch(rank), EndWatch(grandchild)};
  process.kill(SIGKILL);
  for (const EndWatch& watch : watches) EXPECT_TRUE(watch.ended());
}

// In a container lockstep-run may be the first process, which every orphan comes to.
TEST(Run, TheFirstProcessReapsOrphans) {
  if (system("unshare -pf --kill-child --mount-proc true 2>/dev/null") != 0)
    GTEST_SKIP() << "no process namespaces here";
  const char* const script =
      "orphan=$(sh -c 'sleep 0 >/dev/null & echo $!'); "
      "while [ -e /proc/$orphan ]; do sleep 0.01; done; echo reaped; exit 3";
  ChildProcess process({"/usr/bin/unshare", "-pf", "--kill-child", "--mount-proc", LOCKSTEP_RUN, "-n", "1",
                        "/bin/sh", "-c", script},
                       kEnvironment);
  EXPECT_EQ(process.read_line(), "[0] reaped");
  EXPECT_EQ(exit_code(process.wait()), 3);
}

TEST(Run, GrandchildrenEndWithTheirRank) {
  ChildProcess process = start({"-n", "1", "/bin/sh", "-c", "sleep 1000 & echo $$ $!"});
  const EndWatch grandchild(read_pids(process, 1)[1]);
  EXPECT_EQ(exit_code(process.wait()), 0);
  EXPECT_TRUE(grandchild.ended());
}

}  // namespace
}  // namespace lockstep::internal
