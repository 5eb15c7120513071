// Where ranks meet at an address: ports and their holders, and the launcher's server.
#include <signal.h>
#include <unistd.h>

#include <array>
#include <future>
#include <utility>

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
                      std::to_string(getpid()) + " (session_address)"),
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

TEST_P(TcpSessionTest, AnAddressWhereNobodyIsFoundIsNamedAsItWasWritten) {
  constexpr std::pair<const char*, const char*> kAddresses[] = {
      {"tcp://127.0.0.1:0",
       "rendezvous tcp://127.0.0.1:0 has port 0, at which nobody is found: name a free port of rank 0's "
       "host"},
      {"served://127.0.0.1:0",
       "rendezvous served://127.0.0.1:0 has port 0, at which nobody is found: take the address() of its "
       "Rendezvous"},
      {"served://somewhere",
       "rendezvous served://somewhere: \"somewhere\" is not an address: write host:port, or [address]:port "
       "for IPv6"},
      {"served://",
       "\"served://\" is not a rendezvous; write tcp://host:port, file:///path, local://name, memory://name "
       "or served://host:port"}};
  for (const auto& [address, words] : kAddresses) {
    rendezvous_ = address;
    EXPECT_EQ(start(environment(0, 2)).read_line(), std::string("error 10 culprit -1: ") + words);
  }
}

TEST_P(TcpSessionTest, ALauncherAtPort0IsNoRendezvousOfTheJob) {
  rendezvous_ = "tcp://127.0.0.1:0";
  Environment variables = environment(0, 2);
  variables["LOCKSTEP_STORE"] = "launcher";
  EXPECT_EQ(
      start(variables).read_line(),
      "error 10 culprit -1: rendezvous tcp://127.0.0.1:0 has port 0, at which nobody is found: name the "
      "port at which the launcher listens, or, where none does, unset LOCKSTEP_STORE and name a free "
      "port of rank 0's host");
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

}  // namespace
}  // namespace lockstep::internal
