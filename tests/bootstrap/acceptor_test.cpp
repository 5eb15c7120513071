// The acceptor when the process has no descriptor left.
#include "lib/bootstrap/acceptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
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

}  // namespace
}  // namespace lockstep::internal
