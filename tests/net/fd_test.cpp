// What a forked child may do: everything, unless the library had something open.
#include "lib/net/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::internal {
namespace {

bool child_is_barred() {
  const pid_t child = fork();
  if (child == 0) _exit(in_forked_child() ? 1 : 0);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST(Fd, OnlyAChildForkedWhileOneIsOpenIsBarred) {
  EXPECT_FALSE(child_is_barred());
  {
    const Fd open(eventfd(0, EFD_CLOEXEC));
    EXPECT_TRUE(child_is_barred());
  }
  EXPECT_FALSE(child_is_barred());
}

TEST(Fd, AChildClosesWhatWasOpen) {
  const Fd open(eventfd(0, EFD_CLOEXEC));
  const pid_t child = fork();
  if (child == 0) _exit(fcntl(open.get(), F_GETFD) == -1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace lockstep::internal
