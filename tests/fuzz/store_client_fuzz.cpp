// Clients of a store whose server knows the secret and then answers anything, in any pieces: the store's
// calls, and the watch that hears of losses. A call ends with what it asked for or with an error, and no rank
// is lost that the group does not have.
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/bootstrap/loss_channel.hpp"
#include "lib/bootstrap/store_protocol.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "tests/fuzz/input.hpp"

namespace lockstep::internal::fuzz {
namespace {

constexpr std::chrono::seconds kSoon{5};
constexpr int kWorld = 4;

const HandshakeKey& key() {
  static const auto& key = *new HandshakeKey(make_handshake_key("job", "secret"));
  return key;
}

/// Bytes of a good answer or piece of news, changed or not, or any others.
std::string something(Input& input) {
  if (input.below(4) == 1) return std::string(input.text(input.below(64)));
  std::string frame;
  if (input.flag()) {
    StoreReply reply;
    if (input.below(8) == 1) reply.status = Status(ErrorCode::timeout, std::string(input.text(8)));
    for (std::size_t i = input.below(4); i > 0; --i) reply.values.emplace_back(input.text(input.below(16)));
    reply.present.resize(input.below(4), input.flag());
    reply.sum = static_cast<std::int64_t>(input.number());
    frame = encode(reply);
  } else {
    StoreRequest news;
    news.verb = input.flag() ? StoreVerb::lost : static_cast<StoreVerb>(1 + input.below(6));
    news.keys.assign(1, "key");
    news.loss = {static_cast<int>(input.number()), std::string(input.text(input.below(16)))};
    frame = encode(news);
  }
  return input.below(4) == 1 ? changed(frame, input) : frame;
}

/// One connection, on a thread of its own: the handshake, an answer to whatever comes, and then the end.
class Server {
 public:
  explicit Server(Input& input) : input_(input) {
    auto listener = tcp_listen({loopback_address(), 0});
    require(listener.ok());
    listener_ = std::move(*listener);
    address_ = local_address(listener_);
    thread_ = std::jthread([this] { serve(); });
  }
  StoreClientOptions options() const {
    return {.server = address_, .key = key(), .rank = 1, .world = kWorld};
  }

 private:
  void serve() {
    pollfd called{listener_.get(), POLLIN, 0};
    require(poll(&called, 1, -1) == 1);
    const Fd client(accept(listener_.get(), nullptr, nullptr));
    listener_.reset();  // Who tries again is refused.
    require(static_cast<bool>(client));
    HandshakeServer handshake(key(), {0, kWorld, {}}, "client");
    std::byte bytes[4096];
    while (handshake.wanted() > 0) {
      const ssize_t got = recv(client.get(), bytes, handshake.wanted(), 0);
      require(got > 0);
      handshake.consume(std::span(bytes).first(static_cast<std::size_t>(got)));
      const auto out = handshake.outgoing();
      require(send(client.get(), out.data(), out.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(out.size()));
      handshake.sent(out.size());
    }
    while (!input_.empty()) {
      const std::string text = something(input_);
      if (send(client.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0) return;
      if (input_.below(4) == 1) static_cast<void>(recv(client.get(), bytes, sizeof bytes, MSG_DONTWAIT));
    }
  }

  Input& input_;  // Of the thread, until it has ended.
  Fd listener_;   // Likewise.
  HostPort address_;
  std::jthread thread_;
};

/// The server's bytes and then its end come whether the client asks for them or not: no call has to wait.
void call(Input& input, Input& said) {
  Server server(said);
  auto store = open_tcp_store(server.options(), kSoon, real_env());
  require(store.ok());
  const std::vector<std::string> keys(1 + input.below(3), "key");
  for (Status status; status.ok();) {
    switch (input.below(4)) {
      case 0:
        status = (*store)->set_one("key", "value");
        break;
      case 1: {
        auto values = (*store)->get(keys, kSoon);
        require(!values.ok() || values->size() == keys.size());
        status = values.status();
        break;
      }
      case 2: {
        auto present = (*store)->wait(keys, kSoon);
        require(!present.ok() || present->size() == keys.size());
        status = present.status();
        break;
      }
      default:
        status = (*store)->add("key", 1).status();
    }
  }
}

void listen(Input& said) {
  const auto board = LossBoard::make(1, kWorld);
  Server server(said);
  auto socket = connect_to_server(server.options(), HandshakeService::watch, kSoon, real_env());
  require(socket.ok());
  const auto channel = make_tcp_loss_channel(std::move(*socket), 0, board);
  channel->report({2, "exited"});
  channel->leave();
  if (const auto lost = board->first()) require(lost->rank >= 0 && lost->rank < kWorld && lost->rank != 1);
}

}  // namespace

void run(Input input) {
  const bool listens = input.below(4) == 1;
  const auto calls = input.bytes(input.below(16));
  Input asks(reinterpret_cast<const std::uint8_t*>(calls.data()), calls.size());
  listens ? listen(input) : call(asks, input);
}

}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::run({data, size});
  return 0;
}
