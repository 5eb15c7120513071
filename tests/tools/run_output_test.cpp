// What the user of lockstep-run sees of its ranks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>

#include "lib/base/env.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/tools/run_program.hpp"

namespace lockstep::internal {
namespace {

TEST(Run, FilesHoldEachRanksOutputAsItIs) {
  TemporaryDirectory directory;
  const Outcome outcome = run_shell(2, "printf 'out %s\\r\\n' $RANK; echo no newline | tr -d '\\n'",
                                    {"--output-dir", directory.path() + "/logs", "-q"});
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(read_file(directory.path() + "/logs/rank-0.log"), "out 0\r\nno newline");
  EXPECT_EQ(read_file(directory.path() + "/logs/rank-1.log"), "out 1\r\nno newline");
}

TEST(Run, FilesOfAnEarlierJobAreBegunAnew) {
  TemporaryDirectory directory;
  for (const char* text : {"the first job said more", "less"})
    run_shell(1, std::string("echo ") + text, {"--output-dir", directory.path(), "-q"});
  EXPECT_EQ(read_file(directory.path() + "/rank-0.log"), "less\n");
}

// -q shows nothing else of it.
TEST(Run, AFileThatCannotTakeARanksOutputIsNamedAndTheJobGoesOn) {
  TemporaryDirectory directory;
  std::filesystem::create_symlink("/dev/full", directory.path() + "/rank-1.log");
  const Outcome outcome =
      run_shell(2, "echo one; echo two; sleep 0.1; echo three", {"--output-dir", directory.path(), "-q"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.error,
            "lockstep-run: the log of rank 1 is not whole: No space left on device; the job goes on\n");
  EXPECT_EQ(read_file(directory.path() + "/rank-0.log"), "one\ntwo\nthree\n");
}

TEST(Run, OutputThatAFullDiskDoesNotTakeIsSpokenOfOnceAndTheJobGoesOn) {
  const Outcome outcome = run_in_shell("\"$RUN\" -n 2 /bin/sh -c 'echo one; echo two' >/dev/full");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.error,
            "lockstep-run: standard output is not whole: No space left on device; the job goes on\n");
}

TEST(Run, LinesAreNeverMixed) {
  const Outcome outcome =
      run_shell(4, "i=0; while [ $i -lt 200 ]; do printf 'aaaa'; printf 'bbbb\\n'; i=$((i+1)); done");
  std::istringstream lines(outcome.output);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line.substr(3), " aaaabbbb");
  EXPECT_EQ(count, 800);
}

TEST(Run, ProgressIsLeftOutOfPipesButForItsEnd) {
  EXPECT_EQ(run_shell(1, "printf '\\r10 %%'; printf '\\r20 %%'; printf '\\r100 %%\\n'; echo end").output,
            "[0] 100 %\n[0] end\n");
}

// Both streams on one pipe, which is full from time to time.
TEST(Run, LongLinesAreNeverMixedEither) {
  const std::string script =
      "i=0; while [ $i -lt 50 ]; do printf '%010000d\\n' 1; printf '%010000d\\n' 2 >&2; i=$((i+1)); done";
  ChildProcess process(
      {"/bin/sh", "-c", "exec \"$0\" \"$@\" 2>&1", LOCKSTEP_RUN, "-n", "2", "/bin/sh", "-c", script},
      kEnvironment);
  sleep_for(std::chrono::milliseconds(500));  // For the pipe to fill.
  std::istringstream lines(process.read_output());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(line.size(), 4u + 10'000u);
    EXPECT_EQ(line.find_first_not_of('0', 4), line.size() - 1);
  }
  EXPECT_EQ(count, 200);
  EXPECT_EQ(exit_code(process.wait()), 0);
}

/// The end of a job whose output nobody reads: its exit code.
int end_unread(ChildProcess& process) {
  EXPECT_TRUE(EndWatch(process.pid()).ended());
  process.kill(SIGKILL);
  return exit_code(process.wait());
}

TEST(Run, SignalsAreHeardWhileNobodyReads) {
  ChildProcess process = start({"-n", "2", "--grace", "1s", "/usr/bin/yes"});
  sleep_for(std::chrono::milliseconds(500));  // For the pipe to fill.
  process.kill(SIGTERM);
  EXPECT_EQ(end_unread(process), 128 + SIGTERM);
}

TEST(Run, DeathsAreHeardWhileNobodyReads) {
  ChildProcess process = start({"-n", "2", "--grace", "1s", "/bin/sh", "-c",
                                "[ $RANK = 0 ] && exec yes; sleep 0.5; echo oops >&2; exit 7"});
  EXPECT_EQ(end_unread(process), 7);
  const std::string error = process.read_error();
  EXPECT_EQ(error.rfind("[1] oops\nlockstep-run: rank 1 (pid ", 0), 0u) << error;
}

TEST(Run, RanksWaitForALateReader) {
  const TemporaryDirectory directory;
  ChildProcess process =
      start({"-n", "1", "/bin/sh", "-c", "seq 1000000; : >" + directory.path() + "/written"});
  sleep_for(std::chrono::seconds(1));  // For the rank to write all, if it could.
  EXPECT_EQ(directory.entries(), 0u);
  const std::string output = process.read_output();
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1'000'000);
  EXPECT_EQ(exit_code(process.wait()), 0);
}

// The stream may be shared with one who made it so.
TEST(Run, NothingIsLostWhereOutputDoesNotBlock) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd from(ends[0]);
  ASSERT_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);  // No Fd, which the child would not have.
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execl(LOCKSTEP_RUN, LOCKSTEP_RUN, "-n", "1", "/usr/bin/seq", "100000", nullptr);
    _exit(127);
  }
  close(ends[1]);
  sleep_for(std::chrono::milliseconds(500));  // For the pipe to fill.
  std::size_t lines = 0;
  std::array<char, 65536> bytes;
  for (ssize_t count; (count = read(from.get(), bytes.data(), bytes.size())) > 0;)
    lines += static_cast<std::size_t>(std::count(bytes.begin(), bytes.begin() + count, '\n'));
  EXPECT_EQ(lines, 100'000u);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(exit_code(status), 0);
}

// Which changes no byte of what they write: \n stays \n.
TEST(Run, OnATerminalRanksSeeATerminal) {
  const TemporaryDirectory directory;
  const std::string command = std::string(LOCKSTEP_RUN) + " -n 1 --output-dir " + directory.path() +
                              " /bin/sh -c 'test -t 1 && test -t 2 && echo terminal'";
  ChildProcess process({"/usr/bin/script", "-qec", command, "/dev/null"}, kEnvironment);
  EXPECT_NE(process.read_output().find("[0] terminal"), std::string::npos);
  EXPECT_EQ(exit_code(process.wait()), 0);
  EXPECT_EQ(read_file(directory.path() + "/rank-0.log"), "terminal\n");
}

// As in a root that somebody changed to without mounting /dev/pts.
TEST(Run, WhereThereAreNoPseudoTerminalsRanksDoWithout) {
  const std::string command = std::string(LOCKSTEP_RUN) + " -n 1 /bin/sh -c 'test -t 1 || echo none'";
  const std::string hidden =
      "mount -t tmpfs none /dev/pts 2>/dev/null && test ! -e /dev/pts/ptmx || exit 99; ";
  ChildProcess process(
      {"/usr/bin/script", "-qec", "unshare -rm /bin/sh -c \"" + hidden + command + "\"", "/dev/null"},
      kEnvironment);
  const std::string output = process.read_output();
  const int code = exit_code(process.wait());
  if (code == 99 || output.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no mounts of its own: " << output;
  EXPECT_EQ(output, "[0] none\r\n");
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace lockstep::internal
