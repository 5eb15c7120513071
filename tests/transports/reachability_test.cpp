// Who reaches whom: what is judged an error, and what travels through the store.
#include "transports/tcp/reachability.hpp"

#include <gtest/gtest.h>

#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

// Ranks 0 to n - 1 on the hosts named.
std::vector<Member> members_on(const std::vector<std::string>& hosts) {
  std::vector<Member> members;
  for (const std::string& host : hosts) {
    Member member;
    member.rank = static_cast<int>(members.size());
    member.host_id = member.host_name = host;
    members.push_back(member);
  }
  return members;
}

TEST(JobHosts, AreNumberedAsTheRanksMeetThem) {
  const JobHosts hosts(members_on({"b", "a", "b", "c"}));
  EXPECT_EQ(hosts.size(), 3);
  EXPECT_EQ(hosts.speakers(), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(hosts.of_rank(2), 0);
  EXPECT_EQ(hosts.name(2), "c (rank 3)");
  EXPECT_TRUE(hosts.connects(1, 0)) << "rank 1 connects to rank 2";
  EXPECT_FALSE(hosts.connects(2, 0)) << "rank 3 is connected to by all others";
}

TEST(Reachability, AClosedWayThatNoLinkTakesIsNoError) {
  const JobHosts hosts(members_on({"a", "b"}));
  const ReachRow there{{1, "10.0.0.2", ""}}, nothing{{0, "", "\n    no answer"}};
  EXPECT_TRUE(judge_reachability(hosts, {there, nothing}).ok());
  const Status status = judge_reachability(hosts, {{{1, "", "\n    no answer"}}, nothing});
  EXPECT_EQ(status.code(), ErrorCode::configuration);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_NE(status.message().find("a (rank 0)  -           NO"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("a (rank 0) to b (rank 1):\n    no answer"), std::string::npos);
}

TEST(Reachability, LargeJobsListTheGapsAlone) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("node" + std::to_string(i));
  const JobHosts hosts(members_on(names));
  std::vector<ReachRow> rows(40);
  for (int i = 0; i + 1 < 40; ++i) rows[static_cast<std::size_t>(i)] = {{i + 1, "", "\n    no"}};
  const std::string text = judge_reachability(hosts, rows).message();
  EXPECT_EQ(text.find("from \\ to"), std::string::npos);
  EXPECT_NE(text.find("and 31 more ways that are closed"), std::string::npos) << text;
}

TEST(ReachRow, SurvivesItsTextAndRefusesWhatIsNone) {
  const ReachRow row{{3, "fd00::1", "", {"fd00::1", "10.0.0.1"}}, {0, "", "why"}};
  const std::string text = encode(row);
  auto same = decode_reach_row(text, 4);
  ASSERT_TRUE(same.ok());
  ASSERT_EQ(same->size(), 2u);
  EXPECT_EQ(same->front().address, "fd00::1");
  EXPECT_EQ(same->front().rails, row.front().rails);
  EXPECT_EQ(same->back().why, "why");
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_FALSE(decode_reach_row(text.substr(0, length), 4).ok()) << length;
  EXPECT_FALSE(decode_reach_row("\xff\xff\xff\xff", 4).ok());
  const auto is_taken = [](std::size_t hosts, std::size_t rails) {
    const HostReach reach{0, "a", "", std::vector<std::string>(rails, "a")};
    return decode_reach_row(encode(ReachRow(hosts, reach)), 1).ok();
  };
  constexpr std::size_t kHosts = kProbedHosts;
  EXPECT_TRUE(is_taken(kHosts, kMaxAddresses));
  EXPECT_FALSE(is_taken(kHosts + 1, 0) || is_taken(1, kMaxAddresses + 1)) << "more than anybody tells";
  for (const int host : {-1, 4, 1 << 30})
    EXPECT_FALSE(decode_reach_row(encode({{host, "", "why"}}), 4).ok()) << host;
}

}  // namespace
}  // namespace lockstep::internal
