// The acceptor when the process has no descriptor left.
#include "lib/bootstrap/acceptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <future>
#include <vector>

#include "lib/net/stream_io.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/support/bounds.hpp"

namespace lockstep::internal {
namespace {

/// Takes every descriptor that the process may still open, until it ends.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &few);
    for (Fd fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); fd; fd = Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)))
      taken_.push_back(std::move(fd));
  }
  ~NoDescriptorsLeft() { setrlimit(RLIMIT_NOFILE, &before_); }
  void give_back_one() { taken_.pop_back(); }
  NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
  NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;

 private:
  rlimit before_{};
  std::vector<Fd> taken_;
};

std::chrono::nanoseconds cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(Acceptor, WaitsForDescriptorsWithoutTurningOnTheSpot) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "this sanitizer looks at objects through a pipe, and takes a missing descriptor for a wrong object";
#endif
  Reactor& reactor = Reactor::instance();
  auto listener = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const HostPort at = local_address(*listener);
  std::unique_ptr<Acceptor> acceptor;
  std::atomic<int> refused{0};
  reactor.run_there([&] {
    acceptor = std::make_unique<Acceptor>(
        reactor, std::move(*listener), make_handshake_key("job", "secret"), 0, 2,
        Acceptor::Events{.admit = {},
                         .accepted = [](Fd, const HandshakeHello&) {},
                         .refused = [&](const HandshakeHello&, const Status&) { ++refused; }});
  });
  std::vector<Fd> clients;
  {
    NoDescriptorsLeft none;
    for (int i = 0; i < 2; ++i) {
      none.give_back_one();
      auto client = start_connect(at);
      ASSERT_TRUE(client.ok()) << client.status().message();
      clients.push_back(std::move(*client));
    }
    ASSERT_LT(dup(clients[0].get()), 0) << "a descriptor is left";
    const auto before = cpu_time();
    EXPECT_EQ(poll(nullptr, 0, 500), 0);
    EXPECT_LT(cpu_time() - before, testing::allowed(std::chrono::milliseconds(5)));
  }
  // Descriptors are free again: the clients that waited are served, here with a refusal of their nonsense.
  const std::vector<std::byte> nonsense(kMaxHandshakeBytes);
  for (const Fd& client : clients) {
    EXPECT_EQ(send_some(client.get(), nonsense).error, 0);
    pollfd entry{client.get(), POLLIN, 0};
    EXPECT_EQ(poll(&entry, 1, 20'000), 1);
  }
  reactor.run_there([&] { acceptor.reset(); });
  EXPECT_EQ(refused.load(), 2);
}

/// Moves the client's side on until it has nothing to write and `wanted` bytes to read.
void talk(const Fd& socket, HandshakeClient& client, std::size_t wanted) {
  std::array<std::byte, kMaxHandshakeBytes> bytes;
  while (!client.outgoing().empty() || client.wanted() > wanted) {
    pollfd ready{socket.get(), static_cast<short>(client.outgoing().empty() ? POLLIN : POLLOUT), 0};
    ASSERT_GT(poll(&ready, 1, 30'000), 0);
    if (!client.outgoing().empty()) {
      client.sent(send_some(socket.get(), client.outgoing()).bytes);
    } else {
      client.consume(
          std::span(bytes).first(receive_some(socket.get(), std::span(bytes).first(client.wanted())).bytes));
    }
  }
}

TEST(Acceptor, AClientThatWasAnsweredIsNotHungUpOnBeforeItsProof) {
  Reactor& reactor = Reactor::instance();
  auto listener = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const HostPort at = local_address(*listener);
  const HandshakeKey key = make_handshake_key("job", "secret");
  std::promise<int> accepted;
  std::unique_ptr<Acceptor> acceptor;
  reactor.run_there([&] {
    acceptor = std::make_unique<Acceptor>(
        reactor, std::move(*listener), key, 0, 2,
        Acceptor::Events{.admit = {},
                         .accepted = [&](Fd, const HandshakeHello& hello) { accepted.set_value(hello.rank); },
                         .refused = {}});
  });
  auto slow = start_connect(at), silent = start_connect(at);
  ASSERT_TRUE(silent.ok() && slow.ok());
  HandshakeHello hello;
  hello.rank = 1;
  hello.world = 2;
  HandshakeClient client(key, hello, "the acceptor");
  talk(*slow, client, kReplyBytes);
  // The reply lies here unread until the acceptor has given up the client that said nothing.
  pollfd hung_up{silent->get(), POLLIN, 0};
  ASSERT_EQ(poll(&hung_up, 1, 60'000), 1);
  talk(*slow, client, 0);
  EXPECT_EQ(client.state(), HandshakeState::established);
  auto done = accepted.get_future();
  ASSERT_EQ(done.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(done.get(), 1);
  reactor.run_there([&] { acceptor.reset(); });
}

}  // namespace
}  // namespace lockstep::internal
