// What one kind of meeting place alone has, but for addresses: files, the user's directory, threads.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "lib/bootstrap/session.hpp"
#include "tests/bootstrap/session_ranks.hpp"

namespace lockstep::internal {
namespace {

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
