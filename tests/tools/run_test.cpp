// lockstep-run, the real program: what its ranks get, and how they meet.
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <atomic>
#include <sstream>

#include "lib/base/config.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/support/forked.hpp"
#include "tests/tools/run_program.hpp"

namespace lockstep::internal {
namespace {

TEST(Run, RanksGetTheirPlaceAndTheirLinesAreMarked) {
  const Outcome outcome = run_shell(
      3,
      "echo $LOCKSTEP_RANK/$LOCKSTEP_WORLD_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK");
  EXPECT_EQ(sorted(outcome.output), "[0] 0/3 0/3 0/3 0\n[1] 1/3 1/3 1/3 0\n[2] 2/3 2/3 2/3 0\n");
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.code, 0);
}

TEST(Run, ThreadsAreDividedUnlessTheUserSaysSo) {
  EXPECT_EQ(sorted(run_shell(32, "echo $OMP_NUM_THREADS", {"--only-rank", "7"}).output), "[7] 1\n");
  Environment environment = kEnvironment;
  environment["OMP_NUM_THREADS"] = "5";
  EXPECT_EQ(run({"-n", "1", "/bin/sh", "-c", "echo $OMP_NUM_THREADS"}, environment).output, "[0] 5\n");
}

// CUDA_VISIBLE_DEVICES= hides all GPUs; unset it shows all.
TEST(Run, EmptyVariablesStayEmpty) {
  Environment environment = kEnvironment;
  environment["CUDA_VISIBLE_DEVICES"] = environment["OMP_NUM_THREADS"] = environment["LOCKSTEP_IFNAME"] = "";
  const Outcome outcome =
      run({"-n", "1", "/bin/sh", "-c",
           "echo ${CUDA_VISIBLE_DEVICES-unset} ${OMP_NUM_THREADS:+divided} ${LOCKSTEP_IFNAME-unset}"},
          environment);
  EXPECT_EQ(outcome.output, "[0] divided\n");
  EXPECT_EQ(outcome.code, 0);
}

TEST(Run, RankZeroReadsStandardInputTheOthersNothing) {
  ChildProcess process = start({"-n", "2", "/bin/sh", "-c", "read line; echo \"$RANK: $line\""});
  process.write_line("hello");
  process.close_input();
  EXPECT_EQ(sorted(process.read_output()), "[0] 0: hello\n[1] 1: \n");
  EXPECT_NE(process.wait(), -1);
}

TEST(Run, DryRunPrintsTheVariables) {
  const Outcome outcome = run({"-n", "2", "--dry-run", "anything"});
  EXPECT_EQ(outcome.code, 0);
  for (const char* line : {"[1] LOCKSTEP_RANK=1\n", "[1] LOCKSTEP_STORE=launcher\n", "[0] WORLD_SIZE=2\n",
                           "[0] MASTER_ADDR=127.0.0.1\n"}) {
    EXPECT_NE(outcome.output.find(line), std::string::npos) << line;
  }
}

TEST(Run, DryRunPrintsWhatRanksWouldGet) {
  Environment environment = kEnvironment;
  environment["OMP_NUM_THREADS"] = "7";
  environment["RANK"] = "9";
  const Outcome outcome = run({"-n", "1", "--dry-run", "anything"}, environment);
  EXPECT_NE(outcome.output.find("[0] OMP_NUM_THREADS=7\n"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("[0] RANK=0\n"), std::string::npos) << outcome.output;
  EXPECT_EQ(outcome.output.find("PATH"), std::string::npos) << outcome.output;
}

TEST(Run, VariablesArePrintedFromTheRegistry) {
  EXPECT_EQ(run({"--variables"}).output, variables_markdown());
}

TEST(Run, HelpSaysHowItIsCalled) {
  const std::string help = run({"--help"}).output;
  EXPECT_NE(help.find("Usage: lockstep-run -n RANKS [OPTIONS] PROGRAM [ARGUMENTS...]\n"), std::string::npos)
      << help;
}

TEST(Run, ArgumentsOfTheProgramAreItsOwn) {
  EXPECT_EQ(run({"-n", "1", "/usr/bin/printf", "%s %s\\n", "--grace", "-q"}).output, "[0] --grace -q\n");
  EXPECT_EQ(run({"-n", "1", "--", "/usr/bin/printf", "%s\\n", "--help"}).output, "[0] --help\n");
}

TEST(Run, RanksOfTheLibraryMeetAndHearHowOneDied) {
  // They ignore SIGTERM, so that the survivor can still say what it heard.
  const std::string script =
      std::string("trap '' TERM; [ $RANK = 1 ] && stay=stay; exec ") + LOCKSTEP_SESSION_RANK + " 60000 $stay";
  ChildProcess process = start({"-n", "2", "--grace", "60s", "--only-rank", "0", "/bin/sh", "-c", script});
  std::istringstream words(process.read_line());
  std::string mark, joined, rank, of, size;
  pid_t pid0 = 0, pid1 = 0;
  words >> mark >> joined >> rank >> of >> size >> pid0 >> pid1;
  ASSERT_GT(pid1, 0);
  kill(pid1, SIGKILL);
  EXPECT_EQ(process.read_line(), "[0] lost 1: was killed by SIGKILL");
  process.close_input();
  EXPECT_EQ(exit_code(process.wait()), 128 + SIGKILL);
}

TEST(Run, ARankThatEndsInMidJobIsHeardToHaveEnded) {
  const std::string script = std::string("[ $RANK = 1 ] && exec ") + LOCKSTEP_SESSION_RANK +
                             " 60000 leave-nothing; exec " + LOCKSTEP_SESSION_RANK + " 60000 stay";
  ChildProcess process = start({"-n", "2", "--only-rank", "0", "/bin/sh", "-c", script});
  EXPECT_EQ(process.read_line().substr(0, 10), "[0] joined");
  EXPECT_EQ(process.read_line(), "[0] lost 1: exited with code 0");
  process.kill(SIGTERM);
}

// Before it joined, and before or after the others came.
TEST(Run, ARankThatEndsBeforeItJoinedIsHeardToHaveEnded) {
  for (const char* first : {"0", "1"}) {
    const std::string script = std::string("[ $RANK = ") + first +
                               " ] || sleep 1; [ $RANK = 1 ] && exit; exec " + LOCKSTEP_SESSION_RANK +
                               " 60000";
    const Outcome outcome = run({"-n", "2", "--only-rank", "0", "/bin/sh", "-c", script});
    EXPECT_EQ(outcome.output,
              "[0] error 3 culprit 1: rank 1 was lost while the ranks met: exited with code 0\n");
    EXPECT_EQ(outcome.code, 1);
  }
}

// Its number is another's there, who lives.
TEST(Run, ARankThatEndedIsNoLossToAGroupWithOtherNumbers) {
  const std::string script =
      std::string("[ $RANK = 0 ] && exit; sleep 1; exec ") + LOCKSTEP_GROUP_RANK + " ^finalize";
  const Outcome outcome = run({"-n", "3", "/bin/sh", "-c", script});
  EXPECT_EQ(sorted(outcome.output), "[1] done\n[1] rank 0: 3\n[2] done\n[2] rank 1: 3\n");
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.code, 0);
}

/// In a child with a network of its own, that has no address but ::1. Whether that can be had here.
bool enter_network_without_v4() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq up{{"lo"}, {}}, none{{"lo"}, {}};
  up.ifr_flags = IFF_UP;
  none.ifr_addr.sa_family = AF_INET;  // In place of 127.0.0.1.
  if (ioctl(any.get(), SIOCSIFFLAGS, &up) != 0 || ioctl(any.get(), SIOCSIFADDR, &none) != 0) return false;
  return tcp_listen({"::1", 0}).ok() && !tcp_listen({"127.0.0.1", 0}).ok();
}

TEST(Run, IsContentWithTheLoopbackOfIPv6) {
  const testing::Shared<std::atomic<bool>> tried;
  testing::run_forked(1, [&](int) {
    if (!enter_network_without_v4()) return;
    tried->store(true);
    Environment environment = kEnvironment;
    environment["LOCKSTEP_TRANSPORTS"] = "tcp";
    const Outcome outcome = run({"-n", "2", LOCKSTEP_GROUP_RANK, "finalize"}, environment);
    EXPECT_EQ(sorted(outcome.output), "[0] done\n[0] rank 0: 3\n[1] done\n[1] rank 1: 3\n");
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(run({"-n", "1", "--dry-run", "anything"}).output.find("[0] MASTER_ADDR=::1\n"),
              std::string::npos);
  });
  if (!tried->load()) GTEST_SKIP() << "no network of its own, or no IPv6";
}

// On each of several hosts it would be a job by itself.
TEST(Run, SaysThatItsRanksMeetNowhereElse) {
  Environment environment = kEnvironment;
  environment["LOCKSTEP_RENDEZVOUS"] = "tcp://node0:29500";
  const Outcome outcome = run({"-n", "1", "/bin/true"}, environment);
  EXPECT_EQ(outcome.error,
            "lockstep-run: its ranks do not meet at LOCKSTEP_RENDEZVOUS=tcp://node0:29500 but by themselves, "
            "on this "
            "host: unset it, or start ranks of several hosts otherwise\n");
  EXPECT_EQ(outcome.code, 0);
  environment["LOCKSTEP_STORE"] = "launcher";  // A rank of another lockstep-run starts this one.
  EXPECT_EQ(run({"-n", "1", "/bin/true"}, environment).error, "");
}

// Its variables are still there, and say other numbers.
TEST(Run, RunsWithinAnotherLaunchersJob) {
  Environment environment = kEnvironment;
  environment.insert(
      {{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  const Outcome outcome = run({"-n", "2", LOCKSTEP_GROUP_RANK, "finalize"}, environment);
  EXPECT_EQ(sorted(outcome.output), "[0] done\n[0] rank 0: 3\n[1] done\n[1] rank 1: 3\n");
  EXPECT_EQ(outcome.error, "");
}

// As after a parent that ignores it (Python's subprocess may): else yes(1) would complain.
TEST(Run, RanksEndByABrokenPipeAsUsual) {
  const Outcome outcome = run_shell(1, "yes | head -n 1");
  EXPECT_EQ(outcome.output, "[0] y\n");
  EXPECT_EQ(outcome.error, "");
}

TEST(Run, RanksFormGroupsOneAfterAnother) {
  const Outcome outcome =
      run({"-n", "2", LOCKSTEP_GROUP_RANK, "finalize", "-mismatch", "abort", "-finalize", "finalize"});
  const std::string of_all =
      "[0] done\n[0] rank 0: 3\n[0] rank 0: 3\n[0] rank 0: 3\n[0] rank 0: 3\n"
      "[0] rank 0: 3\n[0] revoked\n";
  EXPECT_EQ(sorted(outcome.output).substr(0, of_all.size()), of_all);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.code, 0);
}

}  // namespace
}  // namespace lockstep::internal
