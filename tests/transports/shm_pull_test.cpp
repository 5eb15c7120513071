// Domain::pull among real processes: what was read is of the member's process, whatever became of that. This
// process itself never uses the library: its children do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <atomic>
#include <csignal>

#include "tests/transports/shm_support.hpp"

namespace lockstep::internal {
namespace {

using testing::Board;
using testing::exchange_members;
using testing::join;
using testing::Shared;
using testing::start_forked;
using testing::wait_for;
using testing::wait_until;

/// At the same address in all processes of this program.
std::uint64_t g_number = 0;
constexpr std::uint64_t kOfOwner = 1, kOfOther = 2;

struct Scene {
  Board board;
  std::atomic<bool> was_asked{false}, can_pull{false};
  std::atomic<bool> has_done{false};  ///< Rank 0, what it does then.
  /// Numbers: by which rank 0 is read, the same when it is free, and the process that took it.
  std::atomic<pid_t> lasting{0}, freed{0}, taken{0};
};

[[noreturn]] void rest() {
  for (;;) ::pause();
}

/// Rank 0, whose number rank 1 reads, and which does `then` when that has.
void own_number(Scene& scene, const std::function<void()>& then) {
  const auto transport = join(7, 0, exchange_members(scene.board, 0, 2));
  ASSERT_NE(transport, nullptr);
  g_number = kOfOwner;
  scene.lasting = static_cast<pid_t>(transport->domain()->control(0).lasting_thread);
  scene.board.meet(2);
  wait_until([&] { return scene.was_asked.load(); });
  then();
  scene.has_done = true;
  rest();
}

/// Rank 1, which reads it before `change`, and would after it.
void read_number(Scene& scene, const std::function<void()>& change) {
  const auto transport = join(7, 1, exchange_members(scene.board, 1, 2));
  ASSERT_NE(transport, nullptr);
  scene.board.meet(2);
  Domain& domain = *transport->domain();
  std::uint64_t number = 0;
  const auto pull = [&] {
    return domain.pull(0, reinterpret_cast<std::uintptr_t>(&g_number), &number, sizeof number);
  };
  scene.can_pull = domain.can_pull();
  if (scene.can_pull) {
    EXPECT_TRUE(pull().ok());
    EXPECT_EQ(number, kOfOwner);
  }
  scene.was_asked = true;
  if (!scene.can_pull) return;
  change();
  const Status why = pull();
  EXPECT_EQ(why.code(), ErrorCode::peer_lost) << why.message() << "; " << number << " was read";
  EXPECT_EQ(why.culprit(), 0);
}

TEST(ShmPull, AProcessThatBecameAnotherProgramIsLost) {
  Shared<Scene> scene;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);  // At its end when that program has begun.
  const auto children = start_forked(2, [&](int rank) {
    if (rank == 0) {
      ::close(ends[0]);
      return own_number(*scene, [] { ::execl("/bin/sleep", "sleep", "1000", nullptr); });
    }
    ::close(ends[1]);
    read_number(*scene, [&] {
      char none = 0;
      EXPECT_EQ(::read(ends[0], &none, 1), 0);
    });
  });
  for (const int end : ends) ::close(end);
  EXPECT_EQ(wait_for(children[1]), 0);
  ::kill(children[0], SIGKILL);
  wait_for(children[0]);
  if (!scene->can_pull) GTEST_SKIP() << "these processes may not read each other's memory";
}

/// What a process ends with where something is not allowed that a test needs.
constexpr int kNotAllowed = 77;

/// fork(), for a child with a pid that is free; -1 where it may not be chosen.
pid_t fork_as(pid_t pid) {
  clone_args wanted{};
  wanted.exit_signal = SIGCHLD;
  wanted.set_tid = reinterpret_cast<std::uintptr_t>(&pid);
  wanted.set_tid_size = 1;
  return static_cast<pid_t>(::syscall(SYS_clone3, &wanted, sizeof wanted));
}

/// Runs `body` in the first process of a pid namespace, whose pids are its own to choose. What it exits with.
int run_apart(const std::function<void()>& body) {
  const int status =
      wait_for(start_forked(1, [&](int) {
                 if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
                   ::_exit(kNotAllowed);
                 const int first = wait_for(start_forked(1, [&](int) { body(); }).front());
                 ::_exit(WIFEXITED(first) ? WEXITSTATUS(first) : 1);
               }).front());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// Forks a process that forks another one by the first number that is freed.
void start_heir(Scene& scene) {
  if (::fork() != 0) return;
  wait_until([&] { return scene.freed.load() != 0; });
  g_number = kOfOther;
  const pid_t heir = fork_as(scene.freed);
  if (heir != 0) scene.taken = heir;
  rest();
}

enum class Heir { stranger, forked_by_owner, of_another_user };

/// A user who may read its own processes, and not root's.
void become_nobody() {
  constexpr uid_t kNobody = 65534;
  if (::setresuid(kNobody, kNobody, kNobody) != 0 || ::prctl(PR_SET_DUMPABLE, 1) != 0) ::_exit(kNotAllowed);
}

/// The first process of a namespace: what rank 1 reads after another process has the number by which rank 0
/// was read.
void read_by_pid_of(Heir heir, Scene& scene) {
  constexpr pid_t kAny = 1000;
  const pid_t trial = fork_as(kAny);
  if (trial == 0) ::_exit(0);
  if (trial != kAny) ::_exit(kNotAllowed);
  if (heir != Heir::forked_by_owner) start_heir(scene);
  const auto ranks = start_forked(2, [&](int rank) {
    if (heir == Heir::of_another_user) become_nobody();
    if (rank == 0) {
      return own_number(scene, [&] {
        if (heir == Heir::forked_by_owner) start_heir(scene);
      });
    }
    read_number(scene, [&] {
      wait_until([&] { return scene.taken.load() != 0; });
      EXPECT_EQ(scene.taken, scene.freed);
    });
  });
  wait_until([&] { return scene.has_done.load(); });
  ::kill(ranks[0], SIGKILL);
  wait_for(ranks[0]);
  scene.freed = scene.lasting.load();
  EXPECT_EQ(wait_for(ranks[1]), 0);
  if (!scene.can_pull) ::_exit(kNotAllowed);
}

class ShmPullByPid : public ::testing::TestWithParam<Heir> {};

// As of a rank that was stopped while a peer died. The owner's child has much of its memory.
TEST_P(ShmPullByPid, AProcessWhosePidIsAnothersByNowIsLost) {
  Shared<Scene> scene;
  const int code = run_apart([&] { read_by_pid_of(GetParam(), *scene); });
  if (code == kNotAllowed)
    GTEST_SKIP() << "no pid may be chosen here (root, and a pid namespace), or no process be read";
  EXPECT_EQ(code, 0);
}

INSTANTIATE_TEST_SUITE_P(Of, ShmPullByPid,
                         ::testing::Values(Heir::stranger, Heir::forked_by_owner, Heir::of_another_user));

}  // namespace
}  // namespace lockstep::internal
