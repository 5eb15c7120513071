// Whether a rank's process is there still.
#include "lib/bootstrap/member.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/no_descriptors_left.hpp"

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
  if (!testing::kDescriptorsCanRunOut) GTEST_SKIP();
  const testing::NoDescriptorsLeft none;
  expect_that_the_dead_are_told_from_the_living();
}

}  // namespace
}  // namespace lockstep::internal
