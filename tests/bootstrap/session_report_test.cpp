// Missing ranks are named while the others wait, by one voice. Apart from session_test because it takes the
// five seconds that it is about.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <regex>
#include <string>

#include "lib/bootstrap/group_store.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "tests/bootstrap/child_process.hpp"
#include "tests/bootstrap/own_address.hpp"
#include "tests/bootstrap/store_fixtures.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

// And why they may look in vain: they are of another user, who may not open the file, or of a host that has
// another file of that name.
TEST(SessionReport, MissingRanksAreNamedEveryFiveSeconds) {
  TemporaryDirectory directory;
  const std::string hint = "; these ranks meet in the file " + directory.path() +
                           "/store; it belongs to user " + std::to_string(geteuid()) +
                           ": a rank of another user is refused, and says so itself; ranks of other hosts "
                           "must share its file system";
  std::vector<ChildProcess> ranks;
  for (const char* rank : {"0", "2"}) {
    const Environment environment{{"RANK", rank},
                                  {"WORLD_SIZE", "3"},
                                  {"LOCKSTEP_RENDEZVOUS", "file://" + directory.path() + "/store"}};
    ranks.push_back(ChildProcess({LOCKSTEP_SESSION_RANK, "9000"}, environment));
  }
  const std::regex end(
      "error 4 culprit -1: 2 of 3 ranks are here, missing: rank 1 after [0-9]+ s; look at the output of what "
      "should have started there" +
      hint);
  for (ChildProcess& rank : ranks) {
    const std::string line = rank.read_line();
    EXPECT_TRUE(std::regex_match(line, end)) << line;
  }
  const std::string report = ranks[0].read_error();
  EXPECT_TRUE(std::regex_match(
      report, std::regex("lockstep: 2 of 3 ranks are here, missing: rank 1 after [5-8] s" + hint + "\n")))
      << report;
  EXPECT_EQ(ranks[1].read_error(), "");
}

// The first host has not started, and rank 1 with it.
TEST(SessionReport, AMissingHostOfTheStoreIsNamedByTheLastRankToo) {
  const std::string rendezvous = "tcp://" + own_address();
  std::vector<ChildProcess> ranks;
  for (const char* rank : {"2", "3"}) {
    const Environment environment{{"RANK", rank}, {"WORLD_SIZE", "4"}, {"LOCKSTEP_RENDEZVOUS", rendezvous}};
    ranks.push_back(ChildProcess({LOCKSTEP_SESSION_RANK, "9000"}, environment));
  }
  EXPECT_EQ(ranks[0].read_error(), "");
  const std::string report = ranks[1].read_error();
  EXPECT_TRUE(std::regex_match(report, std::regex("lockstep: rank 0 is missing after [5-8] s: the store at "
                                                  ".* could not be reached: .*\n")))
      << report;
}

// Rank 0 stops, or its host hangs, once rank 1 has come: there is a connection, and nobody at its end.
TEST(SessionReport, AStoreThatStopsInTheMidstOfTheStartIsNamed) {
  StoreClientOptions client;
  client.server = parse_host_port(own_address()).value();
  std::vector<ChildProcess> ranks;
  for (const char* rank : {"0", "1"}) {
    const Environment environment{
        {"RANK", rank}, {"WORLD_SIZE", "3"}, {"LOCKSTEP_RENDEZVOUS", "tcp://" + client.server.text()}};
    ranks.push_back(ChildProcess({LOCKSTEP_SESSION_RANK, "12000"}, environment));
  }
  client.key = make_handshake_key("", "");
  client.rank = 2;
  client.world = 3;
  auto store = open_tcp_store(client, kSoon, real_env());
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_TRUE(store.value()->get_one(group_prefix(1) + "member/1", kSoon).ok());
  ranks[0].kill(SIGSTOP);
  const std::string named = "the store at " + client.server.text() +
                            ", which rank 0 serves, has not answered for [0-9]+ s: is its process, or its "
                            "host, stopped[?]";
  const std::string line = ranks[1].read_line(), report = ranks[1].read_error();
  EXPECT_TRUE(std::regex_match(line, std::regex("error 4 culprit -1: " + named))) << line;
  EXPECT_TRUE(std::regex_match(report, std::regex("(lockstep: .*\n)*lockstep: " + named + "\n"))) << report;
}

// Of ranks with starters of their own each waits alone, at a place of its own.
TEST(SessionReport, RanksThatAParentNamesTheirPlaceForAreToldTheWayOut) {
  TemporaryDirectory directory;
  const Environment environment{
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}, {"XDG_RUNTIME_DIR", directory.path()}};
  ChildProcess rank({LOCKSTEP_SESSION_RANK, "7000"}, environment);
  const std::regex hint(
      ".*missing: rank 0 after [0-9]+ s; .*these ranks meet at local://mpich-parent" +
      std::to_string(getpid()) +
      "-[0-9a-f]+, named after the process that started them: .*set LOCKSTEP_JOB_ID equally on all ranks\n?");
  const std::string line = rank.read_line(), report = rank.read_error();
  EXPECT_TRUE(std::regex_match(line, hint)) << line;
  EXPECT_TRUE(std::regex_match(
      report, std::regex("lockstep: 1 of 2 ranks is here, missing: rank 0 after [5-8] s; these "
                         "ranks meet at local://.*equally on all ranks\n")))
      << report;
}

}  // namespace
}  // namespace lockstep::internal
