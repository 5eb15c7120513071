// Whether a rank's process is there still, and which processes its number is one of.
#include "lib/bootstrap/member.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <string>

#include "lib/memory/descriptor_service.hpp"
#include "lib/net/fd.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/no_descriptors_left.hpp"
#include "tests/support/refused_call.hpp"

namespace lockstep::internal {
namespace {

void expect_that_the_dead_are_told_from_the_living() {
  Member ended, here;
  here.pid = getpid();
  ended.pid = fork();
  if (ended.pid == 0) _exit(0);
  ASSERT_EQ(waitpid(static_cast<pid_t>(ended.pid), nullptr, 0), ended.pid);
  EXPECT_TRUE(has_ended(ended));
  EXPECT_FALSE(has_ended(here));
}

TEST(Member, HasEndedOnceItsProcessHas) { expect_that_the_dead_are_told_from_the_living(); }

TEST(Member, HasEndedOnceItsProcessHasWhereNoDescriptorIsLeft) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP();
  const lockstep::testing::NoDescriptorsLeft none;
  expect_that_the_dead_are_told_from_the_living();
}

// Peers that need its memory have only its word for it.
TEST(Member, TellsWhyNobodyCanHaveItsMemory) {
  testing::run_forked(1, [](int) {
    ASSERT_TRUE(lockstep::testing::refuse_call(SYS_bind, EPERM));
    const auto fetched =
        fetch_descriptors(this_member(0).descriptor_service, "memory", IfAbsent::fail, 1'000);
    EXPECT_EQ(fetched.status().message(),
              "the process could not start what hands out its memory: binding the descriptor service's "
              "socket: Operation not permitted; where that cannot be mended, use LOCKSTEP_TRANSPORTS=tcp");
  });
}

/// What this_member() calls a host that is called `name`; empty where the system gives no names to try.
std::string host_name_where_it_is(const std::string& name) {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool has = unshare(CLONE_NEWUTS) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWUTS) == 0;
    if (!has || sethostname(name.data(), name.size()) != 0) _exit(0);
    const std::string text = this_member(0).host_name;
    _exit(write(ends[1], text.data(), text.size()) < 0);
  }
  const Fd read_end(ends[0]);  // Made here: a forked child's are closed.
  close(ends[1]);
  waitpid(child, nullptr, 0);
  std::array<char, 512> text{};
  return read(read_end.get(), text.data(), text.size() - 1) > 0 ? text.data() : "";
}

// As Kubernetes makes them of a pod's name and domain.
TEST(Member, HasTheLongestNameThatAHostCanHave) {
  const std::string longest(HOST_NAME_MAX, 'h');
  const std::string name = host_name_where_it_is(longest);
  if (name.empty()) GTEST_SKIP() << "this system gives no host names of one's own";
  EXPECT_EQ(name, longest);
}

/// this_container() in the first process of another pid namespace of this network; empty where the system has
/// none to give.
std::string container_of_others() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool has = unshare(CLONE_NEWPID) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0;
    const pid_t first = has ? fork() : -1;
    if (first == 0) {
      const std::string text = this_container();
      _exit(write(ends[1], text.data(), text.size()) < 0);
    }
    if (first > 0) waitpid(first, nullptr, 0);
    _exit(0);
  }
  const Fd read_end(ends[0]);  // Made here: a forked child's are closed.
  close(ends[1]);
  waitpid(child, nullptr, 0);
  std::array<char, 512> text{};
  return read(read_end.get(), text.data(), text.size() - 1) > 0 ? text.data() : "";
}

// As two of `docker run --network host`: their processes have the same numbers.
TEST(Container, IsAnotherWherePidsMeanOthers) {
  const std::string other = container_of_others();
  if (other.empty()) GTEST_SKIP() << "this system gives no pid namespace";
  EXPECT_NE(other, this_container());
}

}  // namespace
}  // namespace lockstep::internal
