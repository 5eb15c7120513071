// A store's server whose clients know the secret and then say anything, in any pieces, as clients and as
// watches; and strangers who do not. Whatever they say, the next client is served.
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/bootstrap/store_protocol.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "tests/fuzz/input.hpp"

namespace lockstep::internal::fuzz {
namespace {

constexpr std::chrono::seconds kSoon{5};

class Served {
 public:
  void hear(Input& input) {
    if (++runs_ % 256 == 1) start();
    std::vector<Fd> clients;
    while (!input.empty()) {
      if (clients.empty() || input.below(8) == 1) clients.push_back(connect(input));
      const Fd& client = clients[input.below(clients.size())];
      const std::string said = input.flag() ? request(input) : std::string(input.text(input.below(64)));
      static_cast<void>(send(client.get(), said.data(), said.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      if (input.below(8) == 1) drain(client);
    }
    clients.clear();
    serve_another();
  }

 private:
  void start() {
    auto server = StoreServer::start({.key = key_});
    require(server.ok());
    server_ = std::move(*server);
  }
  StoreClientOptions options(int rank, std::uint64_t group) const {
    return {.server = server_->address(), .key = key_, .rank = rank, .world = 4, .group = group};
  }
  Fd stranger() const {
    auto socket = tcp_connect(server_->address(), kSoon, real_env());
    require(socket.ok());
    return std::move(*socket);
  }
  Fd connect(Input& input) {
    const auto service = input.flag() ? HandshakeService::store : HandshakeService::watch;
    if (input.below(16) == 1) return stranger();
    auto socket = connect_to_server(options(static_cast<int>(input.below(4)), 1 + input.below(3)), service,
                                    kSoon, real_env());
    if (socket.ok()) return std::move(*socket);
    return stranger();
  }
  static std::string request(Input& input) {
    StoreRequest request;
    request.verb = static_cast<StoreVerb>(1 + input.below(6));
    const std::string key(input.text(input.below(4)));
    request.entries.assign(1 + input.below(3), {key, std::string(input.text(input.below(16)))});
    request.keys.assign(1 + input.below(3), key);
    request.timeout_ms = input.flag() ? 0 : static_cast<std::uint32_t>(input.number());
    request.delta = static_cast<std::int64_t>(input.number());
    request.loss = {static_cast<int>(input.number()), key};
    return encode(request);
  }
  static void drain(const Fd& client) {
    char some[4096];
    pollfd entry{client.get(), POLLIN, 0};
    if (poll(&entry, 1, 1) == 1) static_cast<void>(recv(client.get(), some, sizeof some, MSG_DONTWAIT));
  }
  void serve_another() {
    auto store = open_tcp_store(options(3, 9), kSoon, real_env());
    require(store.ok());
    require(store.value()->set_one("mine", "value").ok());
    require(store.value()->get_one("mine", kSoon).value() == "value");
  }

  const HandshakeKey key_ = make_handshake_key("job", "secret");
  std::unique_ptr<StoreServer> server_;
  std::uint64_t runs_ = 0;
};

}  // namespace

void run(Input input) {
  static auto& served = *new Served;  // The reactor's thread may outlive what is static.
  served.hear(input);
}

}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::run({data, size});
  return 0;
}
