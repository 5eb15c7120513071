// A process that forms one group after another, or beside another, at one meeting place; real processes, over
// every kind of place. (Under lockstep-run: tests/tools/run_test.cpp.)
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <optional>
#include <thread>

#include "lib/bootstrap/file_store.hpp"
#include "lib/bootstrap/memory_store.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "lib/net/tcp_socket.hpp"
#include "lockstep/lockstep.hpp"
#include "tests/bootstrap/child_process.hpp"
#include "tests/bootstrap/own_address.hpp"
#include "tests/bootstrap/store_fixtures.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

using Arguments = std::vector<std::string>;
using std::chrono::milliseconds;

class Groups : public testing::TestWithParam<std::string> {
 protected:
  Groups() {
    if (GetParam() == "tcp") rendezvous_ = "tcp://" + own_address();
    if (GetParam() == "file") rendezvous_ = "file://" + directory_.path() + "/store";
    if (GetParam() == "local") rendezvous_ = "local://groups-test";
    if (GetParam() == "local") mkdir((directory_.path() + "/lockstep").c_str(), 0700);  // See open_store().
    if (GetParam() != "served") return;
    StoreServerOptions options;
    options.key = make_handshake_key("job", "s3cret");
    auto server = StoreServer::start(std::move(options));
    EXPECT_TRUE(server.ok());
    server_ = std::move(*server);
    rendezvous_ = "served://" + server_->address().text();
  }
  ChildProcess start(int rank, int world, Arguments groups) const {
    groups.insert(groups.begin(), LOCKSTEP_GROUP_RANK);
    return ChildProcess(std::move(groups), {{"RANK", std::to_string(rank)},
                                            {"WORLD_SIZE", std::to_string(world)},
                                            {"LOCKSTEP_RENDEZVOUS", rendezvous_},
                                            {"LOCKSTEP_JOB_ID", "job"},
                                            {"LOCKSTEP_SECRET", "s3cret"},
                                            {"LOCKSTEP_START_TIMEOUT", "60s"},
                                            {"LOCKSTEP_LOG", "off"},  // A busy machine has late ranks.
                                            {"XDG_RUNTIME_DIR", directory_.path()}});
  }
  /// The ranks' store, which lives as long as it is held here.
  std::unique_ptr<Store> open_store() const {
    const std::string local = directory_.path() + "/lockstep/groups-test";
    StoreClientOptions client;
    client.key = make_handshake_key("job", "s3cret");
    if (rendezvous_.find("://127.") != std::string::npos)
      client.server = parse_host_port(rendezvous_.substr(rendezvous_.find("://") + 3)).value();
    auto store =
        client.server.port == 0
            ? open_file_store(GetParam() == "file" ? rendezvous_.substr(7) : local, kSoon, real_env())
            : open_tcp_store(client, kSoon, real_env());
    EXPECT_TRUE(store.ok()) << store.status().message();
    return store.ok() ? std::move(*store) : nullptr;
  }
  /// Until some rank has written `key`.
  void await(const std::string& key) const {
    const auto store = open_store();
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(store->get_one(key, kSoon).ok());
  }
  /// Three ranks that all do the same.
  void expect_all(const Arguments& groups, const std::string& output) const {
    std::vector<ChildProcess> ranks;
    for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(rank, 3, groups));
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      std::string expected;
      for (const char c : output)
        expected += c == '#' ? "rank " + std::to_string(rank) + ": 6\n" : std::string(1, c);
      EXPECT_EQ(ranks[rank].read_output(), expected + "done\n");
      EXPECT_EQ(ranks[rank].read_error(), "");
    }
  }

  TemporaryDirectory directory_;
  std::unique_ptr<StoreServer> server_;
  std::string rendezvous_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, Groups, testing::Values("tcp", "file", "local", "served"),
                         [](const auto& kind) { return kind.param; });

TEST_P(Groups, FollowEachOther) { expect_all({"finalize", "finalize", "finalize", "finalize"}, "####"); }

TEST_P(Groups, LiveBesideEachOther) { expect_all({"-finalize", "-abort", "-finalize"}, "###"); }

TEST_P(Groups, ComeAfterARevoke) {
  expect_all({"mismatch", "-mismatch", "abort", "finalize"}, "#revoked\n#revoked\n##");
}

TEST_P(Groups, ARankThatComesLateForTheNextFindsTheOthers) {
  auto patient = start(0, 2, {"finalize", "finalize"});
  auto late = start(1, 2, {"-finalize", "wait", "finalize"});
  EXPECT_EQ(patient.read_line(), "rank 0: 3");
  EXPECT_EQ(late.read_line(), "rank 1: 3");
  EXPECT_EQ(late.read_line(), "waits");
  late.write_line("now");
  EXPECT_EQ(patient.read_output(), "rank 0: 3\ndone\n");
  EXPECT_EQ(late.read_output(), "rank 1: 3\ndone\n");
}

// The first rank, which may host the store, comes last.
TEST_P(Groups, TheFirstRankMayComeLateForTheNext) {
  auto late = start(0, 2, {"finalize", "wait", "finalize"});
  auto early = start(1, 2, {"finalize", "finalize"});
  EXPECT_EQ(late.read_line(), "rank 0: 3");
  EXPECT_EQ(early.read_line(), "rank 1: 3");
  EXPECT_EQ(late.read_line(), "waits");
  late.write_line("now");
  EXPECT_EQ(early.read_output(), "rank 1: 3\ndone\n");
  EXPECT_EQ(late.read_output(), "rank 0: 3\ndone\n");
}

/// What such a process is told to do.
constexpr const char* kAdvice =
    "; a process that was started anew cannot join the others: start all ranks again, or give the new group "
    "a "
    "rendezvous of its own";

TEST_P(Groups, ARankStartedAnewAloneIsToldApartOnEveryRank) {
  auto old = start(1, 2, {"finalize", "wait"});
  auto stays = start(0, 2, {"-finalize", "wait", "finalize"});
  for (auto* rank : {&old, &stays}) {
    EXPECT_EQ(rank->read_line(), rank == &old ? "rank 1: 3" : "rank 0: 3");
    EXPECT_EQ(rank->read_line(), "waits");
  }
  const std::string killed = rank_text(1, old);
  old.kill(SIGKILL);
  old.wait();
  auto early = start(1, 2, {"finalize"});
  const std::string first = early.read_line();
  EXPECT_EQ(first.rfind("error " + rank_text(1, early), 0), 0u) << first;
  EXPECT_NE(first.find(" comes to a group that has met already, with " + killed), std::string::npos);
  EXPECT_NE(first.find(kAdvice), std::string::npos) << first;

  stays.write_line("now");
  await("2/member/0");
  auto late = start(1, 2, {"finalize"});
  for (auto* rank : {&stays, &late}) {
    const std::string line = rank->read_line();
    EXPECT_EQ(line.rfind("error " + rank_text(1, late), 0), 0u) << line;
    EXPECT_NE(line.find(" has come to group 1 at this rendezvous, " + rank_text(0, stays)), std::string::npos)
        << line;
    EXPECT_NE(line.find(std::string(") to group 2") + kAdvice), std::string::npos) << line;
  }
}

TEST_P(Groups, AllRanksStartedAnewBeginAnew) {
  expect_all({"finalize", "finalize"}, "##");
  if (GetParam() == "served") return;  // A launcher starts ranks again at a place of its own.
  expect_all({"finalize"}, "#");
}

// ---- starts that fail ------------------------------------------------------------------------------------

/// Rank `rank`'s first try has failed, and it waits to be told to go on.
void expect_failed(ChildProcess& rank) {
  const std::string line = rank.read_line();
  EXPECT_EQ(line.rfind("failed: ", 0), 0u) << line;
  EXPECT_NE(line.find(" of 3 ranks "), std::string::npos) << line;
  EXPECT_EQ(rank.read_line(), "waits");
}

class FailedGroups : public Groups {
 protected:
  /// Two of three ranks, in whose first try the last is missing, and which wait.
  void fail_once() {
    for (const int rank : {0, 1}) {
      ranks_.push_back(start(rank, 3, {"!finalize", "wait", "finalize"}));
      if (rank == 0) held_ = open_store();
    }
    for (auto& rank : ranks_) expect_failed(rank);
  }
  void go_on() {
    for (auto& rank : ranks_) rank.write_line("now");
  }
  void expect_all_meet() {
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_EQ(ranks_[rank].read_output(), "rank " + std::to_string(rank) + ": 6\ndone\n");
  }

  std::unique_ptr<Store> held_;
  std::vector<ChildProcess> ranks_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, FailedGroups, testing::Values("tcp", "file", "local", "served"),
                         [](const auto& kind) { return kind.param; });

// The late rank hears first why the others failed, and all meet at their second try.
TEST_P(FailedGroups, MeetAtTheirSecondTry) {
  fail_once();
  ranks_.push_back(start(2, 3, {"?finalize", "wait", "finalize"}));
  expect_failed(ranks_[2]);
  go_on();
  expect_all_meet();
}

TEST_P(FailedGroups, AreJoinedByARankThatMissedTheFirstTry) {
  fail_once();
  go_on();
  await("2/member/0");
  ranks_.push_back(start(2, 3, {"finalize"}));
  expect_all_meet();
}

// ---- ranks in threads ------------------------------------------------------------------------------------

TEST(ThreadGroups, FollowEachOtherInMemory) {
  const auto rank = [](int number) {
    InitOptions options;
    options.rank = number;
    options.world_size = 2;
    options.rendezvous = "memory://thread-groups";
    for (int group = 0; group < 4; ++group) {
      Communicator ranks = Communicator::create(options);
      int sum = number + 1;
      ranks.all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum);
      EXPECT_EQ(sum, 3);
      ranks.finalize();
    }
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
}

/// What all ranks of a group at `place` count together; nothing when its start fails.
std::optional<int> sum_at(const std::string& place, int rank, int world, milliseconds timeout) {
  InitOptions options;
  options.rank = rank;
  options.world_size = world;
  options.rendezvous = place;
  options.timeout = timeout;
  try {
    Communicator ranks = Communicator::create(options);
    int sum = rank + 1;
    ranks.all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum);
    ranks.finalize();
    return sum;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    return std::nullopt;
  }
}

// Nothing but the place tells the two apart: the job has no name.
TEST(ThreadGroups, AtTwoPlacesAreKeptApart) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (const int world : {2, 4}) {
      for (int rank = 0; rank < world; ++rank) {
        threads.emplace_back([=] {
          const std::string place = "memory://apart-" + std::to_string(world);
          EXPECT_EQ(sum_at(place, rank, world, kSoon), world * (world + 1) / 2);
        });
      }
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(ThreadGroups, AtTwoPlacesAreKeptApartBetweenProcesses) {
  for (int round = 0; round < 5; ++round) {
    TemporaryDirectory directory;
    std::vector<ChildProcess> ranks;
    for (const char* rank : {"0", "1"}) {
      ranks.emplace_back(Arguments{LOCKSTEP_GROUP_RANK, "at", "file://" + directory.path() + "/one",
                                   "file://" + directory.path() + "/two"},
                         Environment{{"RANK", rank}, {"WORLD_SIZE", "2"}, {"LOCKSTEP_START_TIMEOUT", "20s"}});
    }
    for (auto& rank : ranks) EXPECT_EQ(rank.read_output(), "3 30 done\n");
  }
}

TEST(ThreadGroups, AStartThatFailedCanBeRepeated) {
  const std::string name = "failed-threads";
  const auto held = open_memory_store(name);
  const auto try_as = [&](int rank, milliseconds timeout) {
    return sum_at("memory://" + name, rank, 3, timeout);
  };
  std::thread other([&] { EXPECT_FALSE(try_as(1, milliseconds(300))); });
  EXPECT_FALSE(try_as(0, milliseconds(300)));
  other.join();
  EXPECT_FALSE(try_as(2, kSoon));  // Hears at once why the others failed.
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) threads.emplace_back([&, rank] { EXPECT_EQ(try_as(rank, kSoon), 6); });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep::internal
