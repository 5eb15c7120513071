// A rank that fails and ends without a link over which it could say so, as behind a firewall that closed
// after the start: this program's connect(2) refuses, where a rank says so, all ports but that of the
// meeting.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <optional>
#include <string>

#include "collectives/communicator_core.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "tests/bootstrap/own_address.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/thrown_by.hpp"

namespace {

std::atomic<bool> g_closed{false};
std::atomic<int> g_refused{0};
std::atomic<std::uint16_t> g_open_port{0};
std::atomic<bool> g_no_memory{false};  ///< For whoever asks next.

}  // namespace

extern "C" int connect(int fd, const sockaddr* to, socklen_t size) {
  static const auto real =
      reinterpret_cast<int (*)(int, const sockaddr*, socklen_t)>(dlsym(RTLD_NEXT, "connect"));
  const bool tcp = to->sa_family == AF_INET;
  if (g_closed && tcp && ntohs(reinterpret_cast<const sockaddr_in*>(to)->sin_port) != g_open_port) {
    ++g_refused;
    errno = ECONNREFUSED;
    return -1;
  }
  return real(fd, to, size);
}

extern "C" int memfd_create(const char* name, unsigned flags) noexcept {
  if (!g_no_memory.exchange(false)) return static_cast<int>(syscall(SYS_memfd_create, name, flags));
  errno = ENFILE;
  return -1;
}

namespace lockstep {
namespace {

using internal::testing::Board;
using internal::testing::run_forked;
using internal::testing::Shared;
using testing::thrown_by;

Communicator join(int rank, const std::string& rendezvous, int size, const char* transports) {
  InitOptions options;
  options.rank = rank;
  options.world_size = size;
  options.rendezvous = rendezvous;
  options.secret = "s3cret";
  options.job_id = "job";
  options.transports = transports;
  return Communicator::create(options);
}

Communicator join(int rank, const std::string& rendezvous, int size = 2) {
  return join(rank, rendezvous, size, "tcp");
}

/// Rank 0 cannot connect to rank 1, which has asked it to, and waits.
void expect_rank_1_to_hear(int rank, const std::string& rendezvous) {
  g_closed = rank == 0;
  Communicator ranks = join(rank, rendezvous);
  if (rank == 0) internal::testing::wait_until([] { return g_refused > 0; });
  int sum = 1;
  CallOptions options;
  options.timeout = std::chrono::seconds(60);
  const Error error =
      thrown_by([&] { ranks.all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum, options); });
  EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
  EXPECT_EQ(error.culprit(), 1 - rank) << error.what();
  const std::string said = error.what();
  EXPECT_NE(said.find(rank == 0 ? ") cannot be reached: cannot connect to 127" : "is gone: it"),
            std::string::npos)
      << said;
}

TEST(UnlinkedFailure, IsHeardOfWhereTheRankServesTheStore) {
  const std::string place = internal::own_address();
  run_forked(2, [&](int rank) {
    g_open_port = internal::parse_host_port(place).value().port;
    expect_rank_1_to_hear(rank, "tcp://" + place);
  });
}

// Rank 1 has asked to be called, and only it knows that it waits: a message ends no communicator.
TEST(UnlinkedFailure, OfAMessageIsHeardOfByWhoWaitsForIt) {
  const internal::TemporaryDirectory directory;
  run_forked(2, [&](int rank) {
    g_closed = rank == 0;
    Communicator ranks = join(rank, "file://" + directory.path() + "/store");
    if (rank == 0) internal::testing::wait_until([] { return g_refused > 0; });
    int word = 0;
    CallOptions options;
    options.timeout = std::chrono::seconds(60);
    const Error error = thrown_by([&] { ranks.recv(&word, 1, DataType::i32, 1 - rank, 0, options); });
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    EXPECT_EQ(error.culprit(), 1 - rank) << error.what();
  });
}

/// Runs body(rank, address of the store) in so many processes, two of which come to its end. Another one
/// serves the store.
void run_served(int ranks, std::chrono::milliseconds evidence_grace,
                const std::function<void(int rank, const std::string& place)>& body) {
  const Shared<Board> board;
  const Shared<std::atomic<int>> ended;
  run_forked(ranks + 1, [&](int rank) {
    if (rank < ranks) {
      body(rank, board->read(ranks));
      ended->fetch_add(1);
      return;
    }
    internal::StoreServerOptions options;
    options.key = internal::make_handshake_key("job", "s3cret");
    options.evidence_grace = evidence_grace;
    const auto server = internal::StoreServer::start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().message();
    board->post(ranks, server.value()->address().text());
    internal::testing::wait_until([&] { return ended->load() == 2; });
  });
}

TEST(UnlinkedFailure, IsHeardOfWhereAnotherProcessServesTheStore) {
  run_served(2, std::chrono::milliseconds(0), [](int rank, const std::string& place) {
    g_open_port = internal::parse_host_port(place).value().port;
    expect_rank_1_to_hear(rank, "served://" + place);
  });
}

TEST(UnlinkedFailure, IsHeardOfWhereNobodyServesTheStore) {
  const internal::TemporaryDirectory directory;
  run_forked(2, [&](int rank) { expect_rank_1_to_hear(rank, "file://" + directory.path() + "/store"); });
}

// A rank whose link to a dead one has ended has told all that there are: what it sends in a part of the group
// still comes, though it leaves the job before that is received.
TEST(LinkedFailure, IsNoLossOfTheRankThatHeardOfIt) {
  const Shared<Board> board;
  run_served(3, std::chrono::milliseconds(100), [&](int rank, const std::string& place) {
    auto ranks = std::make_optional(join(rank, "served://" + place, 3));
    std::optional<Communicator> survivors = ranks->split(rank < 2 ? 0 : -1, rank);
    ranks->barrier();
    if (rank == 2) ::_exit(0);
    survivors->barrier();
    EXPECT_THROW(ranks->barrier(), Error);
    int word = 7 - rank;
    if (rank == 0) {
      survivors->send(&word, 1, DataType::i32, 1);
      ranks.reset();
      survivors.reset();
    }
    board->meet(2);
    if (rank == 1) {  // A loss would be told by then.
      internal::sleep_for(std::chrono::milliseconds(500));
      EXPECT_NO_THROW(survivors->recv(&word, 1, DataType::i32, 0));
      EXPECT_EQ(word, 7);
    }
    board->meet(2);
  });
}

/// Of three ranks that have met, `failing` cannot be set up.
void expect_all_to_hear_why(int rank, int failing, const std::string& rendezvous, const char* transports,
                            const std::string& why) {
  const Error error = thrown_by([&] { const Communicator ranks = join(rank, rendezvous, 3, transports); });
  const std::string said = error.what();
  EXPECT_NE(said.find(why), std::string::npos) << said;
  if (rank == failing) return;
  EXPECT_EQ(error.code(), ErrorCode::peer_lost) << said;
  EXPECT_EQ(error.culprit(), failing) << said;
}

/// Over TCP, and rank `failing` lives on until all have heard.
void fail_without_interface(int failing, const std::string& rendezvous) {
  const Shared<Board> board;
  run_forked(3, [&](int rank) {
    if (rank == failing) setenv("LOCKSTEP_IFNAME", "=nowhere", 1);
    expect_all_to_hear_why(rank, failing, rendezvous, "tcp",
                           "no network interface that LOCKSTEP_IFNAME==nowhere admits is up");
    board->meet(3);
  });
}

TEST(FailedSetUp, IsHeardOfWhereARankServesTheStore) {
  for (const int failing : {0, 1}) fail_without_interface(failing, "tcp://" + internal::own_address());
}

TEST(FailedSetUp, IsHeardOfWhereNobodyServesTheStore) {
  const internal::TemporaryDirectory directory;
  fail_without_interface(1, "file://" + directory.path() + "/store");
}

/// Rank 1 has room for what is told in the store, and not for a group's memory.
void fail_without_room(bool lives_on) {
  const internal::TemporaryDirectory directory;
  const Shared<Board> board;
  run_forked(3, [&](int rank) {
    const rlimit small{64 << 10, 64 << 10};
    if (rank == 1) {
      ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    }
    expect_all_to_hear_why(rank, 1, "file://" + directory.path() + "/store", "shm",
                           "larger than this process may make a file");
    if (lives_on) board->meet(3);
  });
}

TEST(FailedSetUp, IsHeardOfInSharedMemory) { fail_without_room(true); }

// No deadline ends the others' waiting.
TEST(FailedSetUp, IsHeardOfAmongThreads) {
  run_forked(1, [](int) {
    setenv("LOCKSTEP_START_TIMEOUT", "0", 1);
    g_no_memory = true;
    const Error error = thrown_by([&] { Communicator::local_group(3, "shm"); });
    EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
    EXPECT_NE(std::string(error.what()).find("Too many open files in system"), std::string::npos)
        << error.what();
  });
}

// The others notice first that a process is gone: rank 1's, or that of whoever noticed before.
TEST(FailedSetUp, IsTheReasonWhereTheProcessEnds) { fail_without_room(false); }

// What is told of this rank's end by the end of its last communicator.
TEST(WorldEnd, IsInOrderUnlessSomethingFailedAndNobodyCameTogetherSince) {
  using internal::Status;
  const Status closed(ErrorCode::aborted, "the communicator was finalized on this rank");
  const Status failed(ErrorCode::mismatch, "another call", 1);
  internal::WorldEnd end;
  end.ended(closed);
  EXPECT_TRUE(end.failure().ok());
  end.ended(failed);
  end.ended(closed);
  EXPECT_EQ(end.failure().message(), "another call");
  end.came_together();
  EXPECT_TRUE(end.failure().ok());
  internal::WorldEnd aborted;
  aborted.ended(Status(ErrorCode::aborted, "rank 0 aborted", 0));
  EXPECT_EQ(aborted.failure().message(), "rank 0 aborted");
}

}  // namespace
}  // namespace lockstep
