// Ranks that meet, over every kind of store: what each of them says when one of them deviates or dies.
#include <signal.h>

#include <string>
#include <vector>

#include "tests/bootstrap/session_ranks.hpp"

namespace lockstep::internal {
namespace {

TEST_P(SessionTest, AllRanksLearnOfAllRanks) {
  auto ranks = start_all(4);
  std::string pids;
  for (const auto& rank : ranks) pids += " " + std::to_string(rank.pid());
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks[static_cast<std::size_t>(rank)].read_line(),
              "joined " + std::to_string(rank) + " of 4" + pids);
  }
  for (auto& rank : ranks) rank.close_input();
  for (auto& rank : ranks) {
    EXPECT_EQ(rank.read_output(), "");  // Nobody was lost.
    EXPECT_EQ(rank.read_error(), "");
    EXPECT_EQ(rank.wait(), 0);
  }
}

TEST_P(SessionTest, KilledRanksAreNamedToAllOthers) {
  for (const std::size_t victim : {0u, 2u}) {
    auto ranks = start_all(4);
    for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
    ranks[victim].kill(SIGKILL);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[rank].read_line().substr(0, 6), "lost " + std::to_string(victim));
    }
  }
}

TEST_P(SessionTest, RanksThatExitWithoutLeavingAreLostAndThoseThatLeaveAreNot) {
  auto ranks = start_all(4);
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
  ranks[1].write_line("leave");
  EXPECT_EQ(ranks[1].read_line(), "done");
  ranks[1].kill(SIGKILL);
  ranks[3].write_line("crash");
  for (const std::size_t rank : {0u, 2u}) EXPECT_EQ(ranks[rank].read_line().substr(0, 6), "lost 3");
}

TEST_P(SessionTest, ReportsAreSpreadAndTheFirstCounts) {
  auto ranks = start_all(3);
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
  ranks[1].write_line("report 2 link reset");
  EXPECT_EQ(ranks[0].read_line(), "lost 2: link reset");
  ranks[0].write_line("report 2 another story");
  EXPECT_EQ(ranks[0].read_line(), "done");
}

TEST_P(SessionTest, WorldSizesThatDifferAreNamedOnEveryRank) {
  const auto kept = keep_place();
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.push_back(start(environment(rank, rank == 3 ? 5 : 4)));
  std::vector<std::string> lines;
  for (auto& rank : ranks) lines.push_back(rank.read_line());
  const std::string odd = rank_text(3, ranks[3]);
  for (const std::string& line : lines) {
    EXPECT_EQ(line, lines.front());
    EXPECT_EQ(line.rfind("error 10 culprit -1: world size differs: rank ", 0), 0u) << line;
    // Whoever came first set the terms.
    EXPECT_TRUE(line.find(odd + " with 5;") != std::string::npos ||
                line.find(odd + " was started with 5, ") != std::string::npos)
        << line;
    EXPECT_NE(line.find(" with 4"), std::string::npos);
    EXPECT_NE(line.find("; start all ranks with the same world size"), std::string::npos);
  }
}

TEST_P(SessionTest, TransportsThatDifferAreNamedOnEveryRank) {
  const auto kept = keep_place();
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    Environment variables = environment(rank, 4);
    if (rank >= 2) variables["LOCKSTEP_TRANSPORTS"] = "tcp";
    ranks.push_back(start(variables));
  }
  for (auto& rank : ranks) {
    EXPECT_EQ(rank.read_line(), "error 10 culprit -1: transports differ: " + rank_text(0, ranks[0]) +
                                    " was told to use auto, " + rank_text(2, ranks[2]) +
                                    " tcp; give all ranks the same LOCKSTEP_TRANSPORTS");
  }
}

TEST_P(SessionTest, TwoProcessesWithOneRankAreNamedOnEveryRank) {
  for (const int doubled : {0, 1}) {
    const auto kept = keep_place();
    std::vector<ChildProcess> ranks;
    for (const int rank : {0, 1, 2, doubled}) ranks.push_back(start(environment(rank, 4)));
    const std::string a = rank_text(doubled, ranks[static_cast<std::size_t>(doubled)]);
    const std::string b = rank_text(doubled, ranks[3]);
    const std::string head = "error 10 culprit " + std::to_string(doubled) + ": two processes are rank " +
                             std::to_string(doubled) + ": ";
    const std::string tail = "; give every process its own rank";
    for (auto& rank : ranks) {
      const std::string line = rank.read_line();
      EXPECT_TRUE(line == head + a + " and " + b + tail || line == head + b + " and " + a + tail) << line;
    }
  }
}

TEST_P(SessionTest, MissingRanksAreNamedOnEveryRank) {
  std::vector<ChildProcess> ranks;
  for (const int rank : {0, 1}) ranks.push_back(start(environment(rank, 5)));
  await_members({0, 1}, 2, 5);
  ranks.push_back(start(environment(3, 5), 5'000));  // The first to lose patience.
  for (auto& rank : ranks) {
    const std::string line = rank.read_line();
    EXPECT_EQ(line.rfind("error 4 culprit -1: 3 of 5 ranks are here, missing: rank 2, rank 4 after ", 0), 0u)
        << line;
    EXPECT_NE(line.find(" s; look at the output of what should have started there"), std::string::npos)
        << line;
  }
}

TEST_P(SessionTest, WrongSecretIsToldOnEveryRank) {
  // Over TCP the others learn of it when one loses patience. A file is gone with the last who saw the
  // problem: a rank that comes later begins anew.
  const bool waits = GetParam() == "file";
  std::vector<ChildProcess> ranks;
  ranks.push_back(start(environment(0, 3)));
  if (waits) ranks.push_back(start(environment(1, 3)));
  await_members(waits ? std::vector{0, 1} : std::vector{0}, 1, 3);
  Environment deviant = environment(2, 3);
  deviant["LOCKSTEP_SECRET"] = "guess";
  ranks.push_back(start(deviant));
  std::vector<std::string> lines{ranks.back().read_line()};
  if (!waits) ranks.push_back(start(environment(1, 3), 3000));
  lines.push_back(ranks[0].read_line());
  lines.push_back(ranks[waits ? 1 : 2].read_line());
  for (const std::string& line : lines) {
    EXPECT_NE(line.find("wrong secret"), std::string::npos) << line;
    EXPECT_NE(line.find("rank 2"), std::string::npos) << line;
    EXPECT_NE(line.find("LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE must hold the same"), std::string::npos)
        << line;
  }
}

TEST_P(SessionTest, NextJobAtTheSamePlaceStartsAnew) {
  for (int job = 0; job < 3; ++job) {
    auto ranks = start_all(2);
    for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
    for (auto& rank : ranks) rank.kill(SIGKILL);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SessionTest, testing::Values("tcp", "file"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace lockstep::internal
