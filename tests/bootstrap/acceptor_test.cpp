// The acceptor when the process has no descriptor left.
#include "lib/bootstrap/acceptor.hpp"

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <vector>

#include "lib/net/stream_io.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/support/bounds.hpp"
#include "tests/support/cpu_time.hpp"
#include "tests/support/no_descriptors_left.hpp"

namespace lockstep::internal {
namespace {

TEST(Acceptor, WaitsForDescriptorsWithoutTurningOnTheSpotAndSaysSo) {
  if (!testing::kDescriptorsCanRunOut)
    GTEST_SKIP() << "this sanitizer looks at objects through a pipe, and takes a missing descriptor for a "
                    "wrong object";
  Reactor& reactor = Reactor::instance();
  auto listener = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  const HostPort at = local_address(*listener);
  std::unique_ptr<Acceptor> acceptor;
  std::atomic<int> refused{0};
  reactor.run_there([&] {
    acceptor = std::make_unique<Acceptor>(
        reactor, std::move(*listener), make_handshake_key("job", "secret"), 0, 2,
        Acceptor::Events{
            .admit = {},
            .accepted = [](Fd, const HandshakeHello&) {},
            .refused = [&](const HandshakeHello&, HandshakeStatus, const Status&) { ++refused; }});
  });
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(at.port), .sin_addr = {}, .sin_zero = {}};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Made before the shortage: a descriptor that is free in it may be taken by the acceptor as well.
  std::vector<Fd> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(clients.back());
  }
  ::testing::internal::CaptureStderr();
  {
    const testing::NoDescriptorsLeft none;
    for (const Fd& client : clients)
      ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_LT(dup(clients[0].get()), 0) << "a descriptor is left";
    const auto before = testing::cpu_time();
    EXPECT_EQ(poll(nullptr, 0, 500), 0);
    EXPECT_LT(testing::cpu_time() - before, testing::allowed(std::chrono::milliseconds(5)));
  }
  // Once, and not every time that it looks.
  EXPECT_EQ(
      ::testing::internal::GetCapturedStderr(),
      "lockstep: rank 0 cannot let in the ranks that connect to it: accept: Too many open files: raise the "
      "limit of open files (`ulimit -n`)\n");
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

HandshakeHello hello_of(int rank) {
  HandshakeHello hello;
  hello.rank = rank;
  hello.world = 2;
  return hello;
}

/// A client of the acceptor under test, which says things when the test wants it to.
struct Client {
  Client(const HostPort& at, const HandshakeKey& key, int rank) : handshake(key, hello_of(rank), "acceptor") {
    auto made = start_connect(at);
    EXPECT_TRUE(made.ok()) << made.status().message();
    socket = std::move(*made);
  }
  void say() {
    pollfd ready{socket.get(), POLLOUT, 0};
    ASSERT_EQ(poll(&ready, 1, 30'000), 1);
    handshake.sent(send_some(socket.get(), handshake.outgoing()).bytes);
    ASSERT_TRUE(handshake.outgoing().empty());
  }
  void hear() {
    std::array<std::byte, kMaxHandshakeBytes> bytes;
    while (handshake.wanted() > 0) {
      pollfd ready{socket.get(), POLLIN, 0};
      ASSERT_EQ(poll(&ready, 1, 30'000), 1);
      const auto got = receive_some(socket.get(), std::span(bytes).first(handshake.wanted()));
      ASSERT_FALSE(got.ended || got.error != 0) << "the acceptor hung up";
      handshake.consume(std::span<const std::byte>(bytes).first(got.bytes));
    }
  }
  /// The handshake from beginning to end.
  void finish() {
    say();
    hear();
    say();
  }
  /// Until all that was said is at the acceptor's socket, which acknowledges it.
  void await_arrival() {
    for (int unsent = 1; unsent > 0; poll(nullptr, 0, 1))
      ASSERT_EQ(ioctl(socket.get(), SIOCOUTQ, &unsent), 0);
  }
  void await_end() {
    pollfd ended{socket.get(), POLLIN, 0};
    ASSERT_EQ(poll(&ended, 1, 60'000), 1);
  }

  HandshakeClient handshake;
  Fd socket;
};

/// An acceptor for a world of two, and whom it accepted.
class Accepting : public ::testing::Test {
 protected:
  void SetUp() override {
    auto listener = tcp_listen({"127.0.0.1", 0});
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    at = local_address(*listener);
    reactor.run_there([&] {
      acceptor = std::make_unique<Acceptor>(
          reactor, std::move(*listener), key, 0, 2,
          Acceptor::Events{.admit = {},
                           .accepted = [this](Fd, const HandshakeHello& hello) { ++accepted[hello.rank]; },
                           .refused = {}});
    });
  }
  void TearDown() override {
    reactor.run_there([this] { acceptor.reset(); });
  }
  void await_accepted(int rank, int times) {
    for (int i = 0; i < 30'000 && accepted[rank] < times; ++i) poll(nullptr, 0, 1);
    EXPECT_EQ(accepted[rank], times);
  }

  Reactor& reactor = Reactor::instance();
  const HandshakeKey key = make_handshake_key("job", "secret");
  HostPort at;
  std::unique_ptr<Acceptor> acceptor;
  std::atomic<int> accepted[2]{};
};

TEST_F(Accepting, AClientThatWasAnsweredIsNotHungUpOnBeforeItsProof) {
  Client slow(at, key, 1), silent(at, key, 1);
  slow.say();
  slow.hear();
  silent.await_end();  // Came later, and has had all its time.
  slow.say();
  await_accepted(1, 1);
}

// What a rank once said is enough for an answer.
TEST_F(Accepting, StrangersWhoWereAnsweredAndFallSilentDoNotKeepARankOut) {
  std::vector<std::unique_ptr<Client>> strangers;
  for (std::size_t i = 0; i < kMaxHalfOpen; ++i) {
    strangers.push_back(std::make_unique<Client>(at, key, 1));
    strangers.back()->say();
    strangers.back()->hear();
  }
  Client(at, key, 1).finish();
  await_accepted(1, 1);
}

// They reopen what is closed, so the queue stays as long as it is; a rank comes to its head all the same. A
// machine without a turn to give makes that late as well, so another try may show it.
TEST_F(Accepting, SilentStrangersHoldARankUpForAMomentOnly) {
  auto took = kHandshakeDeadline;
  for (int tries = 1; tries <= 5 && took >= kHandshakeDeadline; ++tries) {
    const Nanos begin = real_env().now();
    std::vector<std::unique_ptr<Client>> strangers;
    for (std::size_t i = 0; i < 3 * kMaxHalfOpen; ++i)
      strangers.push_back(std::make_unique<Client>(at, key, 1));
    Client(at, key, 1).finish();
    await_accepted(1, tries);
    took = std::chrono::milliseconds((real_env().now() - begin) / 1'000'000);
  }
  EXPECT_LT(took, kHandshakeDeadline);
}

// Nobody waits for their places.
TEST_F(Accepting, SilentClientsAreLeftInPeaceWhereThereIsRoom) {
  std::vector<std::unique_ptr<Client>> silent;
  for (std::size_t i = 0; i < kMaxHalfOpen - 1; ++i) silent.push_back(std::make_unique<Client>(at, key, 1));
  Client(at, key, 0).finish();  // Behind them, and takes the last place.
  await_accepted(0, 1);
  reactor.run_there([] { poll(nullptr, 0, static_cast<int>(kHelloPatience.count())); });
  Client(at, key, 0).finish();
  await_accepted(0, 2);
  silent.front()->finish();
  await_accepted(1, 1);
}

// The reactor has no turn for longer than a client may take. The client's hello is here by then, but the
// timer that ends its time comes before the event that tells of it: both are due at once, after an older
// timer, in which the hello is said, so that no order of events can bring it sooner.
TEST_F(Accepting, AClientIsHeardThoughThisProcessHadNoTurnInTime) {
  Client early(at, key, 1);
  Client(at, key, 0).finish();
  await_accepted(0, 1);  // So the early client is accepted too, and its time runs.
  reactor.run_there([&] {
    reactor.at(0, [&] {
      early.say();
      early.await_arrival();
    });
    poll(nullptr, 0, static_cast<int>(kHandshakeDeadline.count()) + 200);
  });
  reactor.run_there(
      [] {});  // After the timers: a proof that is here at once would end the handshake in them.
  early.hear();
  early.say();
  await_accepted(1, 1);
}

}  // namespace
}  // namespace lockstep::internal
