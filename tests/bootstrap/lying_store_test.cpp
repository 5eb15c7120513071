// A server that proves the job's secret, and then answers something else than it was asked.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/bootstrap/acceptor.hpp"
#include "lib/bootstrap/frame_connection.hpp"
#include "lib/bootstrap/store_protocol.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/bootstrap/store_fixtures.hpp"

namespace lockstep::internal {
namespace {

/// Answers every request with `frame`.
class LyingServer {
 public:
  explicit LyingServer(std::string frame) : frame_(std::move(frame)) {
    auto listener = tcp_listen({"127.0.0.1", 0});
    EXPECT_TRUE(listener.ok()) << listener.status().message();
    options_.server = local_address(*listener);
    options_.key = make_handshake_key("job", "secret");
    reactor_.run_there([&] {
      Acceptor::Events events;
      events.accepted = [this](Fd socket, const HandshakeHello&) { serve(std::move(socket)); };
      acceptor_ = std::make_unique<Acceptor>(reactor_, std::move(*listener), options_.key, -1, 0, events);
    });
  }
  ~LyingServer() {
    reactor_.run_there([&] { acceptor_.reset(), connections_.clear(); });
  }
  LyingServer(const LyingServer&) = delete;
  LyingServer& operator=(const LyingServer&) = delete;

  std::unique_ptr<Store> open() {
    auto store = open_tcp_store(options_, kSoon, real_env());
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }

 private:
  void serve(Fd socket) {
    const std::size_t number = connections_.size();
    FrameConnection::Events events;
    events.frame = [this, number](std::span<const std::byte>) {
      connections_[number]->send(frame_);
      return Status();
    };
    events.closed = [](const Status&) {};
    connections_.push_back(
        FrameConnection::open(reactor_, silence_, std::move(socket), kMaxRequestBytes, std::move(events)));
  }

  const std::string frame_;
  Reactor& reactor_ = Reactor::instance();
  SilenceWatch silence_{reactor_, real_env()};
  StoreClientOptions options_;
  std::unique_ptr<Acceptor> acceptor_;
  std::vector<std::shared_ptr<FrameConnection>> connections_;
};

void expect_unauthorized(const Status& status) {
  EXPECT_EQ(status.code(), ErrorCode::unauthorized) << status.message();
  EXPECT_NE(status.message().find("the store at 127.0.0.1"), std::string::npos) << status.message();
}

// Whoever asked looks into it for each key.
TEST(LyingStore, AnAnswerForMoreOrFewerKeysIsAnError) {
  const std::vector<std::string> keys{"a", "b"};
  for (const std::size_t count : {0, 1, 3}) {
    StoreReply reply;
    reply.values.resize(count);
    reply.present.resize(count, true);
    LyingServer server(encode(reply));
    const auto store = server.open();
    expect_unauthorized(store->get(keys, kSoon).status());
    expect_unauthorized(store->wait(keys, kSoon).status());
  }
}

TEST(LyingStore, AnAnswerThatIsNoneIsAnError) {
  StoreReply reply;
  reply.status = Status(static_cast<ErrorCode>(4711), "no error of lockstep's");
  for (const std::string& frame :
       {std::string("\0\0\0\0", 4), std::string("\xff\xff\xff\xff", 4), encode(reply)}) {
    LyingServer server(frame);
    expect_unauthorized(server.open()->add("sum", 1).status());
  }
}

}  // namespace
}  // namespace lockstep::internal
