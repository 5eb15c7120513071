// A rank that fails and ends without a link over which it could say so, as behind a firewall that closed
// after the start: this program's connect(2) refuses, where a rank says so, all ports but that of the
// meeting.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>

#include "collectives/communicator_core.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "tests/bootstrap/own_address.hpp"
#include "tests/engine/process_group.hpp"

namespace {

std::atomic<bool> g_closed{false};
std::atomic<int> g_refused{0};
std::atomic<std::uint16_t> g_open_port{0};

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

namespace lockstep {
namespace {

using internal::testing::Board;
using internal::testing::run_forked;
using internal::testing::Shared;

Communicator join(int rank, const std::string& rendezvous) {
  InitOptions options;
  options.rank = rank;
  options.world_size = 2;
  options.rendezvous = rendezvous;
  options.secret = "s3cret";
  options.job_id = "job";
  options.transports = "tcp";
  return Communicator::create(options);
}

/// Rank 0 cannot connect to rank 1, which has asked it to, and waits.
void expect_rank_1_to_hear(int rank, const std::string& rendezvous) {
  g_closed = rank == 0;
  Communicator ranks = join(rank, rendezvous);
  if (rank == 0) internal::testing::wait_until([] { return g_refused > 0; });
  int sum = 1;
  CallOptions options;
  options.timeout = std::chrono::seconds(60);
  try {
    ranks.all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum, options);
    ADD_FAILURE() << "rank " << rank << " failed to fail";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
    EXPECT_EQ(error.culprit(), 1 - rank) << error.what();
    const std::string said = error.what();
    EXPECT_NE(said.find(rank == 0 ? "): cannot connect to 127" : "is gone: it"), std::string::npos) << said;
  }
}

TEST(UnlinkedFailure, IsHeardOfWhereTheRankServesTheStore) {
  const std::string place = internal::own_address();
  run_forked(2, [&](int rank) {
    g_open_port = internal::parse_host_port(place).value().port;
    expect_rank_1_to_hear(rank, "tcp://" + place);
  });
}

TEST(UnlinkedFailure, IsHeardOfWhereAnotherProcessServesTheStore) {
  const Shared<Board> board;
  const Shared<std::atomic<int>> ended;
  run_forked(3, [&](int rank) {
    if (rank < 2) {
      const std::string place = board->read(2);
      g_open_port = internal::parse_host_port(place).value().port;
      expect_rank_1_to_hear(rank, "served://" + place);
      ended->fetch_add(1);
      return;
    }
    internal::StoreServerOptions options;
    options.key = internal::make_handshake_key("job", "s3cret");
    const auto server = internal::StoreServer::start(std::move(options));
    ASSERT_TRUE(server.ok()) << server.status().message();
    board->post(2, server.value()->address().text());
    internal::testing::wait_until([&] { return ended->load() == 2; });
  });
}

TEST(UnlinkedFailure, IsHeardOfWhereNobodyServesTheStore) {
  const internal::TemporaryDirectory directory;
  run_forked(2, [&](int rank) { expect_rank_1_to_hear(rank, "file://" + directory.path() + "/store"); });
}

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
