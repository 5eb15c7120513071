// Missing ranks are named while the others wait, by one voice. Apart from session_test because it takes the
// five seconds that it is about.
#include <gtest/gtest.h>

#include <regex>

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
    ranks.push_back(ChildProcess({LOCKSTEP_SESSION_RANK, "9000"}, environment));
  }
  const std::regex end(
      "error 4 culprit -1: 2 of 3 ranks are here, missing: rank 1 after [0-9]+ s; look at the output of what "
      "should have started there");
  for (ChildProcess& rank : ranks) {
    const std::string line = rank.read_line();
    EXPECT_TRUE(std::regex_match(line, end)) << line;
  }
  const std::string report = ranks[0].read_error();
  EXPECT_TRUE(std::regex_match(
      report, std::regex("lockstep: 2 of 3 ranks are here, missing: rank 1 after [5-8] s\n")))
      << report;
  EXPECT_EQ(ranks[1].read_error(), "");
}

}  // namespace
}  // namespace lockstep::internal
