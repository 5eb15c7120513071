// lockstep-run when ranks fail, or cannot be started.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <sstream>
#include <utility>

#include "tests/support/no_descriptors_left.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/tools/run_program.hpp"

namespace lockstep::internal {
namespace {

TEST(Run, FirstFailureStopsTheOthersAndGivesTheCode) {
  const Outcome outcome = run_shell(3, "if [ $RANK = 1 ]; then echo oops >&2; exit 7; fi; exec sleep 1000");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.error.rfind("[1] oops\nlockstep-run: rank 1 (pid ", 0), 0u) << outcome.error;
  EXPECT_NE(outcome.error.find(") exited with code 7; the other ranks were stopped\n"
                               "lockstep-run: the last lines of standard error of rank 1:\n[1] oops\n"),
            std::string::npos)
      << outcome.error;
}

TEST(Run, DeathBySignalIsNamedAndCounted) {
  const Outcome outcome = run_shell(2, "if [ $RANK = 0 ]; then kill -KILL $$; fi; exec sleep 1000");
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_NE(outcome.error.find("lockstep-run: rank 0 (pid "), std::string::npos);
  EXPECT_NE(outcome.error.find(") was killed by SIGKILL; the other ranks were stopped\n"), std::string::npos);
}

// Though it hears of both at once.
TEST(Run, TheFirstToFailIsTheCause) {
  ChildProcess process = start({"-n", "2", "/bin/sh", "-c", "echo $RANK $$; exec sleep 1000"});
  std::array<pid_t, 2> pids{};
  for (int i = 0; i < 2; ++i) {
    std::string mark;
    std::size_t rank = 0;
    pid_t pid = 0;
    std::istringstream(process.read_line()) >> mark >> rank >> pid;
    pids.at(rank) = pid;
  }
  process.kill(SIGSTOP);
  wait_for_state(process.pid(), 'T');
  kill(pids[1], SIGTERM);
  wait_for_state(pids[1], 'Z');
  kill(pids[0], SIGKILL);
  wait_for_state(pids[0], 'Z');
  process.kill(SIGCONT);
  EXPECT_EQ(process.read_error().rfind("lockstep-run: rank 1 (pid ", 0), 0u);
  EXPECT_EQ(exit_code(process.wait()), 128 + SIGTERM);
}

TEST(Run, OnlyTheLastLinesAreRepeated) {
  const Outcome outcome =
      run_shell(1, "i=0; while [ $i -lt 50 ]; do echo line $i >&2; i=$((i+1)); done; exit 1", {"--quiet"});
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(outcome.error.find("line 29"), std::string::npos);
  EXPECT_NE(outcome.error.find("[0] line 30\n"), std::string::npos);
  EXPECT_NE(outcome.error.find("[0] line 49\n"), std::string::npos);
}

/// Rank 0 sets `trap` and stays; rank 1 exits with 4, and not before the trap is set.
Outcome fail_beside_trap(const std::string& trap, const std::string& grace) {
  const TemporaryDirectory directory;
  const std::string set = directory.path() + "/set";
  return run_shell(2,
                   "if [ $RANK = 1 ]; then while [ ! -e " + set + " ]; do sleep 0.01; done; exit 4; fi; " +
                       trap + "; : >" + set + "; while :; do sleep 0.01; done",
                   {"--grace", grace});
}

TEST(Run, RanksDeafToSigtermAreKilledAfterTheGraceTime) {
  EXPECT_EQ(fail_beside_trap("trap '' TERM", "100ms").code, 4);
}

TEST(Run, RanksMayEndInOrderDuringTheGraceTime) {
  const Outcome outcome = fail_beside_trap("trap 'echo saved; exit 0' TERM", "60s");
  EXPECT_EQ(outcome.output, "[0] saved\n");
  EXPECT_EQ(outcome.code, 4);
}

// A stopped process sleeps through SIGTERM.
TEST(Run, StoppedRanksGoOnToEndInOrder) {
  const TemporaryDirectory directory;
  const std::string pid = directory.path() + "/pid";
  const Outcome outcome = run_shell(2,
                                    "if [ $RANK = 1 ]; then until grep -qs '^State:.T' /proc/$(cat " + pid +
                                        ")/status; do sleep 0.01; done 2>&-; exit 4; fi; "
                                        "trap 'echo saved; exit 0' TERM; echo $$ >" +
                                        pid + "; kill -STOP $$; while :; do sleep 0.01; done",
                                    {"--grace", "60s"});
  EXPECT_EQ(outcome.output, "[0] saved\n");
  EXPECT_EQ(outcome.code, 4);
}

TEST(Run, AJobOfOneHasNoOtherRanksToSpeakOf) {
  const Outcome outcome = run_shell(1, "exit 3");
  EXPECT_NE(outcome.error.find(") exited with code 3\n"), std::string::npos) << outcome.error;
  EXPECT_EQ(outcome.code, 3);
}

TEST(Run, ProgramsThatCannotRunAreNamed) {
  EXPECT_EQ(run({"-n", "2", "no-such-program"}).error,
            "lockstep-run: cannot find the program \"no-such-program\" in PATH\n");
  const Outcome outcome = run({"-n", "2", "/etc/passwd"});
  EXPECT_EQ(outcome.error, "lockstep-run: cannot run /etc/passwd: Permission denied\n");
  EXPECT_EQ(outcome.code, 127);
}

TEST(Run, NamesThatNoFileCanHaveAreRefused) {
  const std::string name = "./" + std::string(300, 'x');
  const Outcome outcome = run({"-n", "1", name});
  EXPECT_EQ(outcome.error, "lockstep-run: cannot run " + name + ": File name too long\n");
  EXPECT_EQ(outcome.code, 127);
}

TEST(Run, AFolderIsNoProgram) {
  EXPECT_EQ(run({"-n", "1", "/usr/bin"}).error, "lockstep-run: cannot run /usr/bin: Is a directory\n");
}

TEST(Run, DescriptorsAreCountedBeforeTheFirstRankStarts) {
  const Outcome outcome = run_in_shell("ulimit -n 80; exec $RUN -n 40 true");
  EXPECT_EQ(outcome.error,
            "lockstep-run: 40 ranks need 232 descriptors here, and this process may open 80: raise the limit "
            "(ulimit -n), or start fewer ranks\n");
  EXPECT_EQ(outcome.code, 127);
}

TEST(Run, TheUsualLimitIsRaisedHereAndKeptForRanks) {
  const Outcome outcome =
      run_in_shell("ulimit -S -n 80; exec $RUN -n 40 --only-rank 39 /bin/sh -c 'ulimit -n'");
  EXPECT_EQ(outcome.output, "[39] 80\n");
  EXPECT_EQ(outcome.code, 0);
}

// For lockstep-run, which serves the store, and for ranks that meet there.
TEST(Run, ASmallStackIsEnough) {
  if (lockstep::testing::kSanitized) GTEST_SKIP() << "under a sanitizer";
  const Outcome outcome = run_in_shell("ulimit -s 64; exec $RUN -n 2 " LOCKSTEP_GROUP_RANK " finalize");
  EXPECT_EQ(outcome.code, 0) << outcome.error;
}

// Before it opens anything for itself, too.
TEST(Run, AFewDescriptorsAreEnoughToSayWhatIsMissing) {
  EXPECT_EQ(run_in_shell("ulimit -S -n 7; exec $RUN -n 1 true").code, 0);
  const Outcome none = run_in_shell("ulimit -n 7; exec $RUN -n 1 true");
  EXPECT_EQ(none.error,
            "lockstep-run: 1 ranks need 37 descriptors here, and this process may open 7: raise the limit "
            "(ulimit -n), or start fewer ranks\n");
  EXPECT_EQ(none.code, 127);
}

// A library that cannot set itself up throws.
TEST(Run, WhatIsThrownIsTold) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP() << "the sanitizer needs descriptors of its own";
  const Outcome outcome = run_in_shell("ulimit -n 7; exec $RUN -n 1 --dry-run true");
  EXPECT_EQ(outcome.error.rfind("lockstep-run: ", 0), 0u) << outcome.error;
  EXPECT_NE(outcome.error.find("Too many open files: raise the limit of open files (`ulimit -n`)\n"),
            std::string::npos)
      << outcome.error;
  EXPECT_EQ(outcome.code, 127);
}

TEST(Run, AParentThatIgnoresTheEndsOfChildrenIsNoMatter) {
  signal(SIGCHLD, SIG_IGN);
  ChildProcess process = start({"-n", "1", "/bin/sh", "-c", "read line; exit 3"});
  signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(outcome_of(std::move(process)).code, 3);
}

// They were taken, and did nothing.
TEST(Run, OptionsThatWouldMeanNothingAreRefused) {
  const auto error_of = [](std::vector<std::string> options) {
    for (const char* const usual : {"-n", "1", "true"}) options.emplace_back(usual);
    const Outcome outcome = run(options);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.output, "");
    return outcome.error.substr(0, outcome.error.find('\n'));
  };
  const std::string leave = ": leave one of them out";
  EXPECT_EQ(error_of({"--quiet", "--only-rank", "0"}),
            "--only-rank: it means nothing beside --quiet" + leave);
  EXPECT_EQ(error_of({"--variables"}), "--ranks: it means nothing beside --variables" + leave);
  EXPECT_NE(run({"--variables", "true"}).error.find("it runs nothing: leave it out, or the program"),
            std::string::npos);
}

/// Put into the command that is to be run: nothing is made for it.
TEST(Run, ADryRunTakesTheOptionsOfTheRun) {
  const Outcome outcome = run({"-n", "1", "--dry-run", "--output-dir", "/nonexistent/logs", "-q", "true"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
}

TEST(Run, WrongUseIsExplained) {
  EXPECT_NE(run({"true"}).error.find("-n RANKS is required"), std::string::npos);
  EXPECT_NE(run({"-n", "2"}).error.find("PROGRAM is required"), std::string::npos);
  EXPECT_NE(run({"-n", "2", ""}).error.find("PROGRAM is required"), std::string::npos);
  EXPECT_NE(run({"-n", "0", "true"}).error.find("not in range"), std::string::npos);
  EXPECT_NE(run({"-n", "2", "--grace", "soon", "true"}).error.find("\"soon\" is no duration"),
            std::string::npos);
  EXPECT_NE(run({"-n", "2", "--only-rank", "-1", "true"}).error.find("Value -1 not in range 0 to 16383\n"),
            std::string::npos);
  EXPECT_NE(run({"-n", "2", "--only-rank", "2", "true"}).error.find("there is no rank 2 among 2"),
            std::string::npos);
  EXPECT_NE(run({"-n", "2", "--nonsense", "true"}).error.find("--nonsense"), std::string::npos);
  EXPECT_EQ(run({"true"}).code, 2);
  EXPECT_NE(run({"-n", "1", "true"}, {{"LOCKSTEP_RNAK", "1"}}).error.find("did you mean LOCKSTEP_RANK?"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::internal
