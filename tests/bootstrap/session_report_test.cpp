// Missing ranks are named while the others wait, by one voice. Apart from session_test because it takes the
// five seconds that it is about.
#include <gtest/gtest.h>

#include "tests/bootstrap/child_process.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

TEST(SessionReport, MissingRanksAreNamedEveryFiveSeconds) {
  TemporaryDirectory directory;
  std::vector<ChildProcess> ranks;
  for (const char* rank : {"0", "2"}) {
    const Environment environment{{"RANK", rank},
                                  {"WORLD_SIZE", "3"},
                                  {"LOCKSTEP_RENDEZVOUS", "file://" + directory.path() + "/store"}};
    ranks.push_back(ChildProcess({LOCKSTEP_SESSION_RANK, "6000"}, environment));
  }
  const std::string end =
      "error 4 culprit -1: 2 of 3 ranks are here, missing: rank 1 after 6 s; look at the output of what "
      "should have "
      "started there";
  EXPECT_EQ(ranks[0].read_line(), end);
  EXPECT_EQ(ranks[1].read_line(), end);
  EXPECT_EQ(ranks[0].read_error(), "lockstep: 2 of 3 ranks are here, missing: rank 1 after 5 s\n");
  EXPECT_EQ(ranks[1].read_error(), "");
}

}  // namespace
}  // namespace lockstep::internal
