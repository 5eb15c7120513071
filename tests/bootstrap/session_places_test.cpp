// What one kind of meeting place alone has: ports and their holders, files, the user's directory, threads.
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <future>
#include <thread>

#include "lib/base/threads.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/bootstrap/session_ranks.hpp"
#include "tests/support/scoped_variable.hpp"

namespace lockstep::internal {
namespace {

class TcpSessionTest : public SessionTest {};
INSTANTIATE_TEST_SUITE_P(Tcp, TcpSessionTest, ::testing::Values("tcp"));

TEST_P(TcpSessionTest, TakenPortIsNamedWithItsHolder) {
  auto holder = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(holder.ok());
  rendezvous_ = "tcp://" + local_address(*holder).text();
  auto rank0 = start(environment(0, 2), 3000);
  const std::string line = rank0.read_line();
  EXPECT_NE(line.find("rank 0 cannot host the meeting of the ranks: cannot listen on " +
                      local_address(*holder).text() + ": the port is already taken by process " +
                      std::to_string(getpid()) + " (session_places_)"),
            std::string::npos)
      << line;
}

TEST_P(TcpSessionTest, AnAddressThatIsNotOfRank0sHostIsNamedWithTheWayOut) {
  rendezvous_ = "tcp://203.0.113.7:29500";  // RFC 5737: nobody's.
  EXPECT_EQ(
      start(environment(0, 2), 300).read_line(),
      "error 7 culprit -1: rank 0 cannot host the meeting of the ranks: cannot listen on "
      "203.0.113.7:29500: Cannot assign requested address; start rank 0 on the host that the rendezvous "
      "names, or, where the others reach it by an address that is translated on the way, give rank 0 alone "
      "tcp://0.0.0.0:29500");
}

TEST_P(TcpSessionTest, ANameThatRank0DoesNotKnowIsNamedWithTheWayOut) {
  rendezvous_ = "tcp://no-such-host.invalid:29500";
  const std::string line = start(environment(0, 2), 300).read_line();
  for (const char* part :
       {"rank 0 cannot host the meeting of the ranks: cannot find the address of \"no-such-host.invalid\": ",
        "; correct that name in the rendezvous, or make it known on rank 0's host"})
    EXPECT_NE(line.find(part), std::string::npos) << line;
}

TEST_P(TcpSessionTest, Rank0MayListenWhereTheOthersDoNotCall) {
  const std::string port = rendezvous_.substr(rendezvous_.rfind(':'));
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Environment variables = environment(rank, 2);
    if (rank == 0) variables["LOCKSTEP_RENDEZVOUS"] = "tcp://0.0.0.0" + port;
    ranks.push_back(start(variables));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
}

TEST_P(TcpSessionTest, ARankThatDiesWhileOthersMeetIsNamed) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(start(environment(rank, 4)));
  await_members({0, 1, 2}, 3, 4);
  ranks[2].kill(SIGKILL);
  for (const std::size_t rank : {0u, 1u}) {
    const std::string line = ranks[rank].read_line();
    EXPECT_EQ(line.rfind("error 3 culprit 2: " + rank_text(2, ranks[2]) +
                             " was lost while the ranks met: its connection was ",
                         0),
              0u)
        << line;
  }
}

TEST_P(TcpSessionTest, MissingHostIsNamed) {
  auto rank1 = start(environment(1, 2), 300);
  const std::string line = rank1.read_line();
  EXPECT_EQ(line.rfind("error 4 culprit -1: rank 0 is missing after 0 s: the store at " +
                           rendezvous_.substr(6) + " could not be reached: ",
                       0),
            0u)
      << line;
  EXPECT_NE(line.find("Connection refused; look at the output of what should have started it"),
            std::string::npos)
      << line;
}

TEST_P(TcpSessionTest, WhoShouldServeIsNamedAsItIsCalled) {
  const std::string at = rendezvous_.substr(6);
  Environment served = environment(0, 2), launched = served;
  served["LOCKSTEP_RENDEZVOUS"] = "served://" + at;
  launched["LOCKSTEP_STORE"] = "launcher";
  EXPECT_EQ(
      start(served, 300)
          .read_line()
          .rfind("error 4 culprit -1: the job's Rendezvous is missing after 0 s: the store at " + at, 0),
      0u);
  EXPECT_EQ(start(launched, 300)
                .read_line()
                .rfind("error 4 culprit -1: the launcher is missing after 0 s: the store at " + at, 0),
            0u);
}

TEST_P(TcpSessionTest, AnotherJobAtTheAddressIsNoticed) {
  StoreServerOptions options;
  options.key = make_handshake_key("theirs", "s3cret");
  auto server = StoreServer::start(std::move(options));
  ASSERT_TRUE(server.ok());
  rendezvous_ = "tcp://" + server.value()->address().text();
  Environment variables = environment(1, 2);
  variables["LOCKSTEP_JOB_ID"] = "ours";
  auto rank1 = start(variables);
  const std::string line = rank1.read_line();
  EXPECT_NE(line.find("wrong job (this side's job is \"ours\")"), std::string::npos) << line;
}

TEST_P(TcpSessionTest, NoSecretOnAnOpenNetworkIsRefusedOnEveryRank) {
  for (int rank = 0; rank < 2; ++rank) {
    Environment variables = environment(rank, 2);
    variables.erase("LOCKSTEP_SECRET");
    variables["LOCKSTEP_RENDEZVOUS"] = "tcp://192.0.2.1:5000";
    EXPECT_EQ(start(variables).read_line(),
              "error 10 culprit -1: the ranks would meet at 192.0.2.1:5000 without a secret, where anyone on "
              "the network could join; set "
              "LOCKSTEP_SECRET_FILE on all ranks, or LOCKSTEP_INSECURE=1 on a network that you trust");
  }
}

TEST_P(TcpSessionTest, APortThatNobodyFindsIsRefused) {
  rendezvous_ = "tcp://127.0.0.1:0";
  EXPECT_EQ(start(environment(0, 2)).read_line(),
            "error 10 culprit -1: rendezvous tcp://127.0.0.1:0 has port 0, at which nobody is found: name a "
            "free port of rank 0's host");
  rendezvous_ = "served://127.0.0.1:0";
  EXPECT_EQ(start(environment(0, 2)).read_line(),
            "error 10 culprit -1: rendezvous served://127.0.0.1:0 has port 0, at which nobody is found: take "
            "the address() of its Rendezvous");
}

TEST_P(TcpSessionTest, APlaceThatIsNoneIsNamedAsItWasWritten) {
  rendezvous_ = "served://somewhere";
  EXPECT_EQ(start(environment(0, 2)).read_line(),
            "error 10 culprit -1: rendezvous served://somewhere: \"somewhere\" is not an address: write "
            "host:port, or [address]:port for IPv6");
  rendezvous_ = "served://";
  EXPECT_EQ(start(environment(0, 2)).read_line().substr(0, 54),
            "error 10 culprit -1: \"served://\" is not a rendezvous; ");
}

TEST_P(TcpSessionTest, LaunchersServerIsUsedAndItsEvidenceIsHeard) {
  StoreServerOptions options;
  options.key = make_handshake_key("", "s3cret");
  options.evidence_grace = std::chrono::seconds(20);
  auto server = StoreServer::start(std::move(options));
  ASSERT_TRUE(server.ok());
  rendezvous_ = "tcp://" + server.value()->address().text();
  // The launcher has more ranks than this group.
  for (const int rank : {2, 7, -1}) server.value()->report_loss({rank, "exited with code 0"});
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Environment variables = environment(rank, 2);
    variables["LOCKSTEP_STORE"] = "launcher";
    ranks.push_back(start(variables));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
  ranks[0].kill(SIGKILL);
  server.value()->report_loss({0, "killed by SIGKILL"});
  EXPECT_EQ(ranks[1].read_line(), "lost 0: killed by SIGKILL");
}

// Of the launcher's ranks the first has ended, and two others form a group, as its ranks 0 and 1.
TEST(ServedSessions, ARankThatEndedIsNoLossToAGroupWithOtherNumbers) {
  StoreServerOptions options;
  options.key = make_handshake_key("", "s3cret");
  auto server = StoreServer::start(std::move(options));
  ASSERT_TRUE(server.ok());
  server.value()->report_end({0, "exited with code 0"});
  std::array<std::unique_ptr<Session>, 2> sessions;
  on_threads(sessions.size(), [&](std::size_t rank) {
    InitOptions own;
    own.rank = static_cast<int>(rank);
    own.world_size = 2;
    own.rendezvous = std::string(kServedScheme) + server.value()->address().text();
    own.secret = "s3cret";
    auto session = join_session(own, real_env());
    ASSERT_TRUE(session.ok()) << session.status().message();
    sessions.at(rank) = std::move(*session);
  });
  ASSERT_TRUE(sessions[0] && sessions[1]);
  std::promise<std::string> heard;
  sessions[1]->on_loss(1, [&](const Loss& loss) { heard.set_value(loss.evidence); });
  sessions[0]->report_loss({0, "it ended after a failure"});
  EXPECT_EQ(heard.get_future().get(), "it ended after a failure");
  sessions[1]->remove_loss_callback(1);
}

TEST(ServedSessions, WhoReplacesTheLaunchersWordsForTheJobIsToldSo) {
  StoreServerOptions options;
  options.key = make_handshake_key("run", "s3cret");
  auto server = StoreServer::start(std::move(options));
  ASSERT_TRUE(server.ok());
  const testing::ScopedVariable variables[] = {
      {"LOCKSTEP_RANK", "0"},
      {"LOCKSTEP_WORLD_SIZE", "2"},
      {"LOCKSTEP_RENDEZVOUS", "tcp://" + server.value()->address().text()},
      {"LOCKSTEP_STORE", "launcher"},
      {"LOCKSTEP_JOB_ID", "run"},
      {"LOCKSTEP_SECRET", "s3cret"}};
  InitOptions of_program[2];
  of_program[0].job_id = "mine";
  of_program[1].secret = "mine";
  for (const InitOptions& own : of_program) {
    const auto session = join_session(own, real_env());
    EXPECT_NE(
        session.status().message().find("; the program's InitOptions have a job_id or a secret, and the"),
        std::string::npos)
        << session.status().message();
  }
}

class FileSessionTest : public SessionTest {};
INSTANTIATE_TEST_SUITE_P(File, FileSessionTest, ::testing::Values("file"));

// The first rank draws the secret, for which all others wait.
TEST_P(FileSessionTest, AFirstRankThatDiesWhileOthersMeetIsNamed) {
  const auto start_rank = [this](int rank) {
    Environment variables = environment(rank, 3);
    variables.erase("LOCKSTEP_SECRET");
    return start(variables);
  };
  std::vector<ChildProcess> ranks;
  for (const int rank : {0, 1}) ranks.push_back(start_rank(rank));
  await_members({0, 1}, 2, 3);
  const std::string dead = rank_text(0, ranks[0]);
  ranks[0].kill(SIGKILL);
  ranks[0].wait();
  ranks.push_back(start_rank(2));
  for (const std::size_t rank : {1u, 2u}) {
    EXPECT_EQ(ranks[rank].read_line(),
              "error 3 culprit 0: " + dead + " was lost while the ranks met: its process ended");
  }
}

// The process lives on, and with it all by which it is known.
TEST_P(FileSessionTest, ARankThatBecomesAnotherProgramIsLost) {
  auto ranks = start_all(3);
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
  ranks[1].write_line("exec");
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(ranks[rank].read_line(),
              "lost 1: its process became another program (exec), or closed the library's descriptors");
  }
  EXPECT_EQ(::kill(ranks[1].pid(), 0), 0);
}

// Nobody misses who has left, though its process lives on as well.
TEST_P(FileSessionTest, ARankThatLeftMayBecomeAnotherProgram) {
  auto ranks = start_all(3);
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
  for (const char* command : {"leave", "exec"}) ranks[1].write_line(command);
  EXPECT_EQ(ranks[1].read_line(), "done");
  ranks[2].write_line("exec");
  EXPECT_EQ(ranks[0].read_line().substr(0, 6), "lost 2");
}

class LocalSessionTest : public SessionTest {};
INSTANTIATE_TEST_SUITE_P(Local, LocalSessionTest, ::testing::Values("local"));

TEST_P(LocalSessionTest, RanksMeetInTheUsersDirectoryAndLeaveNoFile) {
  auto ranks = start_all(2);
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
  ranks[1].kill(SIGKILL);
  EXPECT_EQ(ranks[0].read_line(), "lost 1: its process ended");
  ranks[0].close_input();
  EXPECT_EQ(ranks[0].wait(), 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path() + "/lockstep"));
}

TEST_P(LocalSessionTest, WhoWaitsInVainIsToldWhere) {
  const std::string line = start(environment(0, 2), 50).read_line();
  EXPECT_NE(line.find("; these ranks meet in the file " + directory_.path() +
                      "/lockstep/session-test; ranks of another user or host, or with another "
                      "XDG_RUNTIME_DIR, look elsewhere"),
            std::string::npos)
      << line;
}

// Else it stays as useless for every later job of the user.
TEST_P(LocalSessionTest, TheUserMayUseTheDirectoryWhateverTheUmask) {
  const mode_t usual = umask(0177);
  auto ranks = start_all(2);
  umask(usual);
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
  struct stat facts {};
  ASSERT_EQ(stat((directory_.path() + "/lockstep").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & ALLPERMS, static_cast<mode_t>(S_IRWXU));
}

TEST_P(LocalSessionTest, DirectoriesOpenToOthersAreRefused) {
  const std::string path = directory_.path() + "/lockstep";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  ASSERT_EQ(chmod(path.c_str(), 0770), 0);
  EXPECT_EQ(
      start(environment(0, 2)).read_line(),
      "error 10 culprit -1: " + path +
          " is not a directory of this user alone, so ranks cannot meet there safely; remove it, or set "
          "XDG_RUNTIME_DIR or LOCKSTEP_RENDEZVOUS");
}

TEST_P(LocalSessionTest, ADirectoryThatCannotBeMadeIsNamedWithTheWayOut) {
  Environment variables = environment(0, 2);
  std::string& path = variables["XDG_RUNTIME_DIR"];
  while (path.size() < 4090) path += "/.";  // A path that "/lockstep" makes too long, for root as well.
  const std::string line = start(variables).read_line();
  EXPECT_EQ(
      line.rfind("error 10 culprit -1: cannot create the directory " + path + "/lockstep, where ranks", 0),
      0u)
      << line;
  EXPECT_NE(line.find(": File name too long; set XDG_RUNTIME_DIR to a directory of this user that can be "
                      "written, or LOCKSTEP_RENDEZVOUS"),
            std::string::npos)
      << line;
}

// As su and sudo leave the variable.
TEST_P(LocalSessionTest, TheDirectoryOfAnotherUserIsPassedOver) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  ASSERT_EQ(chown(directory_.path().c_str(), 12345, 12345), 0);
  rendezvous_ += "-" + std::to_string(getpid());  // The usual directory is everybody's.
  auto ranks = start_all(2);
  for (auto& rank : ranks) EXPECT_EQ(rank.read_line().substr(0, 6), "joined");
  EXPECT_EQ(directory_.entries(), 0u);
  for (auto& rank : ranks) rank.close_input();
  for (auto& rank : ranks) EXPECT_EQ(rank.wait(), 0);
}

// ---- ranks in threads ------------------------------------------------------------------------------------

TEST(ThreadSessions, MeetInMemory) {
  constexpr int kRanks = 4;
  std::vector<std::unique_ptr<Session>> sessions(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      InitOptions options;
      options.rank = rank;
      options.world_size = kRanks;
      options.rendezvous = "memory://thread-sessions";
      auto session = join_session(options, real_env());
      ASSERT_TRUE(session.ok()) << session.status().message();
      sessions[static_cast<std::size_t>(rank)] = std::move(*session);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& session : sessions) {
    ASSERT_NE(session, nullptr);
    EXPECT_EQ(session->members().size(), static_cast<std::size_t>(kRanks));
    EXPECT_EQ(session->members()[3].process, session->members()[0].process);
    EXPECT_FALSE(session->secret().empty());
    EXPECT_EQ(session->secret(), sessions[0]->secret());
  }
}

TEST(ThreadSessions, WhoWaitsInMemoryForAnotherProcessIsToldThatNoneComes) {
  InitOptions options;
  options.rank = 0;
  options.world_size = 2;
  options.rendezvous = "memory://alone";
  options.timeout = std::chrono::milliseconds(50);
  const auto session = join_session(options, real_env());
  ASSERT_FALSE(session.ok());
  EXPECT_NE(session.status().message().find("; at memory://alone meet threads of one process, and no other"),
            std::string::npos)
      << session.status().message();
}

// A relative path is another file in every directory.
TEST(ThreadSessions, RefusesWhatIsNoRendezvous) {
  InitOptions options;
  options.rank = 0;
  options.world_size = 2;
  options.timeout = std::chrono::milliseconds(50);
  for (const char* text :
       {"http://x", "tcp://", "tcp://host", "local://a/b", "nonsense", "file://a", "file://a/b"}) {
    options.rendezvous = text;
    const auto session = join_session(options, real_env());
    ASSERT_FALSE(session.ok()) << text;
    EXPECT_EQ(session.status().code(), ErrorCode::configuration) << session.status().message();
  }
}

TEST(ThreadSessions, OneRankNeedsNobody) {
  InitOptions options;
  options.rank = 0;
  options.world_size = 1;
  const auto session = join_session(options, real_env());
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(session.value()->size(), 1);
  EXPECT_EQ(session.value()->members().front().pid, getpid());
}

}  // namespace
}  // namespace lockstep::internal
