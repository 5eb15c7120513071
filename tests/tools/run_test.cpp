// lockstep-run, the real program: what its ranks get, what the user sees, and that nothing is left behind
// however it ends.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "lib/base/config.hpp"
#include "lib/base/env.hpp"
#include "tests/bootstrap/child_process.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

const Environment kEnvironment{{"PATH", "/usr/local/bin:/usr/bin:/bin"}};

ChildProcess start(std::vector<std::string> arguments, const Environment& environment = kEnvironment) {
  arguments.insert(arguments.begin(), LOCKSTEP_RUN);
  return ChildProcess(std::move(arguments), environment);
}

struct Outcome {
  std::string output, error;
  int code = -1;
};

Outcome run(std::vector<std::string> arguments, const Environment& environment = kEnvironment) {
  ChildProcess process = start(std::move(arguments), environment);
  process.close_input();
  Outcome outcome;
  outcome.output = process.read_output();
  outcome.error = process.read_error();
  outcome.code = exit_code(process.wait());
  return outcome;
}

/// `script` on `ranks` ranks.
Outcome run_shell(int ranks, const std::string& script, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"-n", std::to_string(ranks)});
  options.insert(options.end(), {"/bin/sh", "-c", script});
  return run(std::move(options));
}

std::string sorted(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line + "\n");
  std::sort(lines.begin(), lines.end());
  std::string all;
  for (const std::string& line : lines) all += line;
  return all;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Sees a process end, whoever reaps it.
class EndWatch {
 public:
  explicit EndWatch(pid_t pid) : pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  bool ended() const {
    if (!pidfd_) return true;
    pollfd entry{pidfd_.get(), POLLIN, 0};
    return poll(&entry, 1, 60'000) == 1;
  }

 private:
  Fd pidfd_;
};

// ---- what ranks get --------------------------------------------------------------------------------------

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

TEST(Run, VariablesArePrintedFromTheRegistry) {
  EXPECT_EQ(run({"--variables"}).output, variables_markdown());
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

// ---- failures --------------------------------------------------------------------------------------------

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

TEST(Run, ProgramsThatCannotRunAreNamed) {
  EXPECT_EQ(run({"-n", "2", "no-such-program"}).error,
            "lockstep-run: cannot find the program \"no-such-program\" in PATH\n");
  const Outcome outcome = run({"-n", "2", "/etc/passwd"});
  EXPECT_EQ(outcome.error, "lockstep-run: cannot run /etc/passwd: Permission denied\n");
  EXPECT_EQ(outcome.code, 127);
}

TEST(Run, AFolderIsNoProgram) {
  EXPECT_EQ(run({"-n", "1", "/usr/bin"}).error, "lockstep-run: cannot run /usr/bin: Is a directory\n");
}

// As shells set limits: what `limit` says, then lockstep-run.
Outcome run_limited(const std::string& limit, const std::string& arguments) {
  ChildProcess process({"/bin/sh", "-c", "ulimit " + limit + "; exec " + LOCKSTEP_RUN + " " + arguments},
                       kEnvironment);
  process.close_input();
  return {process.read_output(), process.read_error(), exit_code(process.wait())};
}

TEST(Run, DescriptorsAreCountedBeforeTheFirstRankStarts) {
  const Outcome outcome = run_limited("-n 80", "-n 40 true");
  EXPECT_EQ(outcome.error,
            "lockstep-run: 40 ranks need 232 descriptors here, and this process may open 80: raise the limit "
            "(ulimit -n), or start fewer ranks\n");
  EXPECT_EQ(outcome.code, 127);
}

TEST(Run, TheUsualLimitIsRaisedHereAndKeptForRanks) {
  const Outcome outcome = run_limited("-S -n 80", "-n 40 --only-rank 39 /bin/sh -c 'ulimit -n'");
  EXPECT_EQ(outcome.output, "[39] 80\n");
  EXPECT_EQ(outcome.code, 0);
}

TEST(Run, WrongUseIsExplained) {
  EXPECT_NE(run({"true"}).error.find("-n RANKS is required"), std::string::npos);
  EXPECT_NE(run({"-n", "2"}).error.find("PROGRAM is required"), std::string::npos);
  EXPECT_NE(run({"-n", "2", ""}).error.find("PROGRAM is required"), std::string::npos);
  EXPECT_NE(run({"-n", "0", "true"}).error.find("not in range"), std::string::npos);
  EXPECT_NE(run({"-n", "2", "--grace", "soon", "true"}).error.find("\"soon\" is no duration"),
            std::string::npos);
  EXPECT_NE(run({"-n", "2", "--only-rank", "2", "true"}).error.find("there is no rank 2 among 2"),
            std::string::npos);
  EXPECT_NE(run({"-n", "2", "--nonsense", "true"}).error.find("--nonsense"), std::string::npos);
  EXPECT_EQ(run({"true"}).code, 2);
  EXPECT_NE(run({"-n", "1", "true"}, {{"LOCKSTEP_RNAK", "1"}}).error.find("did you mean LOCKSTEP_RANK?"),
            std::string::npos);
}

// ---- output ----------------------------------------------------------------------------------------------

TEST(Run, FilesHoldEachRanksOutputAsItIs) {
  TemporaryDirectory directory;
  const Outcome outcome = run_shell(2, "printf 'out %s\\r\\n' $RANK; echo no newline | tr -d '\\n'",
                                    {"--output-dir", directory.path() + "/logs", "-q"});
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(read_file(directory.path() + "/logs/rank-0.log"), "out 0\r\nno newline");
  EXPECT_EQ(read_file(directory.path() + "/logs/rank-1.log"), "out 1\r\nno newline");
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

TEST(Run, OnATerminalRanksSeeATerminal) {
  const std::string command =
      std::string(LOCKSTEP_RUN) + " -n 1 /bin/sh -c 'test -t 1 && test -t 2 && echo terminal'";
  ChildProcess process({"/usr/bin/script", "-qec", command, "/dev/null"}, kEnvironment);
  EXPECT_NE(process.read_output().find("[0] terminal"), std::string::npos);
  EXPECT_EQ(exit_code(process.wait()), 0);
}

// ---- signals, and nothing left behind --------------------------------------------------------------------

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

TEST(Run, SecondInterruptKillsAtOnce) {
  ChildProcess process = start({"-n", "2", "--grace", "1000s", "/bin/sh", "-c",
                                "trap 'echo no' INT; echo ready; while :; do sleep 0.01; done"});
  process.read_line();
  process.read_line();
  process.kill(SIGINT);
  EXPECT_EQ(process.read_line().substr(3), " no");
  process.kill(SIGINT);
  EXPECT_EQ(exit_code(process.wait()), 128 + SIGKILL);
}

/// The state letter of a process, as ps shows it.
char state_of(pid_t pid) {
  const std::string text = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = text.rfind(") ");
  return name_end == std::string::npos ? '?' : text[name_end + 2];
}

TEST(Run, StopsAndContinuesWithItsRanks) {
  ChildProcess process = start({"-n", "1", "/bin/sh", "-c", "echo $$; exec sleep 1000"});
  const pid_t rank = std::stoi(process.read_line().substr(4));
  process.kill(SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(process.pid(), &status, WUNTRACED), process.pid());
  EXPECT_TRUE(WIFSTOPPED(status));
  while (state_of(rank) != 'T') sleep_for(std::chrono::milliseconds(1));
  process.kill(SIGCONT);
  process.kill(SIGUSR1);
  EXPECT_EQ(exit_code(process.wait()), 128 + SIGUSR1);
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

TEST(Run, GrandchildrenEndWithTheirRank) {
  ChildProcess process = start({"-n", "1", "/bin/sh", "-c", "sleep 1000 & echo $$ $!"});
  const EndWatch grandchild(read_pids(process, 1)[1]);
  EXPECT_EQ(exit_code(process.wait()), 0);
  EXPECT_TRUE(grandchild.ended());
}

}  // namespace
}  // namespace lockstep::internal
