// Hosts that vanish without a word, as the store's connections see it. This machine stands for both: over an
// address that is not a loopback one, with the socket of the peer cut off from what comes for it.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <future>

#include "lib/bootstrap/loss_board.hpp"
#include "lib/bootstrap/loss_channel.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "lib/net/interfaces.hpp"
#include "lib/net/stream_io.hpp"
#include "tests/bootstrap/store_fixtures.hpp"
#include "tests/net/connected_pair.hpp"

namespace lockstep::internal {
namespace {

class VanishedHost : public testing::Test {
 protected:
  void SetUp() override {
    const auto addresses = interface_addresses();
    for (const InterfaceAddress& one : addresses.ok() ? addresses.value() : std::vector<InterfaceAddress>()) {
      if (!one.loopback && !one.v6) address_ = one.address;
    }
    if (address_.empty()) GTEST_SKIP() << "this machine has loopback addresses only";
  }
  /// What is said of the loss of `rank`, in time.
  static std::string evidence(LossBoard& board, int rank) {
    const auto heard = std::make_shared<std::promise<std::string>>();
    board.listen(1, [=](const Loss& loss) {
      if (loss.rank == rank) heard->set_value(loss.evidence);
    });
    auto said = heard->get_future();
    const bool in_time = said.wait_for(std::chrono::seconds(40)) == std::future_status::ready;
    board.remove(1);
    return in_time ? said.get() : "nobody noticed";
  }

  std::string address_;
};

class VanishedRank : public VanishedHost {
 protected:
  void SetUp() override {
    VanishedHost::SetUp();
    if (IsSkipped()) return;
    StoreServerOptions options;
    options.at = {address_, 0};
    options.key = make_handshake_key("job", "secret");
    auto server = StoreServer::start(options);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    key_ = options.key;
    board_ = LossBoard::make(0, 4);
    channel_ = make_tcp_loss_channel(watch(0), -1, board_);
  }
  Fd watch(int rank) {
    StoreClientOptions options;
    options.server = server_->address();
    options.key = key_;
    options.rank = rank;
    options.world = 4;
    auto socket = connect_to_server(options, HandshakeService::watch, kSoon, real_env());
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    return std::move(*socket);
  }

  HandshakeKey key_;
  std::unique_ptr<StoreServer> server_;
  std::shared_ptr<LossBoard> board_;
  std::unique_ptr<LossChannel> channel_;
};

TEST_F(VanishedRank, IsNoticedWhereNothingIsOnItsWay) {
  const Fd vanished = watch(2);
  cut_off(vanished.get());
  EXPECT_EQ(evidence(*board_, 2), silence_text());
}

TEST_F(VanishedRank, IsNoticedWhereSomethingIs) {
  const Fd vanished = watch(2);
  cut_off(vanished.get());
  server_->report_loss({3, "killed by SIGKILL"});  // Told to all.
  EXPECT_EQ(evidence(*board_, 2), silence_text());
}

/// The store's host, from a rank's side.
TEST_F(VanishedHost, OfTheStoreIsNoticed) {
  auto listener = tcp_listen({address_, 0});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  ConnectedPair pair = connect_pair(*listener);
  const auto board = LossBoard::make(1, 2);
  const auto channel = make_tcp_loss_channel(std::move(pair.client), 0, board);
  cut_off(pair.server.get());
  channel->report({2, "its link was reset"});  // On its way for ever.
  EXPECT_EQ(evidence(*board, 0), silence_text());
}

/// Whose process it is may come to light behind its end.
TEST(EndedServer, IsALossOnceItsRankIsKnown) {
  ConnectedPair pair = connect_pair();
  const auto board = LossBoard::make(1, 2);
  const auto channel = make_tcp_loss_channel(std::move(pair.client), -1, board);
  pair.server.reset();
  poll(nullptr, 0, 50);  // So that it is behind it.
  channel->server_is(0);
  std::promise<int> lost;
  board->listen(1, [&](const Loss& loss) { lost.set_value(loss.rank); });
  auto rank = lost.get_future();
  ASSERT_EQ(rank.wait_for(kSoon), std::future_status::ready);
  EXPECT_EQ(rank.get(), 0);
  board->remove(1);
}

/// The sockets that a listener at `port` of this process accepted.
std::vector<int> accepted_at(std::uint16_t port) {
  std::vector<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in own{}, peer{};
    socklen_t size = sizeof own;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0 || own.sin_family != AF_INET) continue;
    size = sizeof peer;
    if (ntohs(own.sin_port) == port && getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0)
      found.push_back(fd);
  }
  return found;
}

TEST_F(VanishedRank, EndsTheRequestOfOneWhoseStoreWasThere) {
  StoreClientOptions options;
  options.server = server_->address();
  options.key = key_;
  auto store = open_tcp_store(options, kSoon, real_env());
  ASSERT_TRUE(store.ok()) << store.status().message();
  for (const int fd : accepted_at(server_->address().port)) cut_off(fd);
  const auto value = store.value()->get_one("never set", std::chrono::seconds(40));
  EXPECT_EQ(value.status().code(), ErrorCode::peer_lost) << value.status().message();
  EXPECT_NE(value.status().message().find(silence_text()), std::string::npos) << value.status().message();
}

}  // namespace
}  // namespace lockstep::internal
