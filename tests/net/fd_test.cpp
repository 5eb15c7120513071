// What a forked child may do: everything, unless the library had something open. And the numbers of standard
// streams, which are never the library's.
#include "lib/net/fd.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

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

/// Calls body() in a child that was started without standard streams. Whether all that it expects held.
template <typename Body>
bool holds_without_standard_streams(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(stream);
    _exit(body() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_closed(int fd) { return fcntl(fd, F_GETFD) == -1; }

TEST(Fd, NoNumberOfAStandardStreamIsTheLibrarys) {
  EXPECT_TRUE(holds_without_standard_streams([] {
    const Fd open(eventfd(0, EFD_CLOEXEC));
    const std::uint64_t one = 1;
    std::uint64_t read_back = 0;
    return open.get() > STDERR_FILENO && is_closed(STDIN_FILENO) && is_closed(STDERR_FILENO) &&
           (fcntl(open.get(), F_GETFD) & FD_CLOEXEC) != 0 &&
           write(open.get(), &one, sizeof one) == sizeof one &&
           read(open.get(), &read_back, sizeof read_back) == sizeof read_back && read_back == one;
  }));
}

TEST(Fd, WhereOnlyTheNumbersOfStandardStreamsAreLeftThereIsNone) {
  EXPECT_TRUE(holds_without_standard_streams([] {
    const rlimit three{STDERR_FILENO + 1, STDERR_FILENO + 1};
    setrlimit(RLIMIT_NOFILE, &three);
    const Fd none(eventfd(0, EFD_CLOEXEC));
    const int why = errno;
    return !none && why == EMFILE && is_closed(STDIN_FILENO);
  }));
}

}  // namespace
}  // namespace lockstep::internal
