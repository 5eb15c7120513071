// A probe of other hosts, stepped by hand: what comes when it has ended already.
#include "transports/tcp/host_probe.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <atomic>
#include <map>
#include <utility>

#include "lib/bootstrap/acceptor.hpp"
#include "lib/net/stream_io.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/support/no_descriptors_left.hpp"

namespace lockstep::internal {
namespace {

/// A reactor without a thread. After the first task that is run there it does what the test wants.
class SteppedReactor final : public Reactor {
 public:
  explicit SteppedReactor(std::function<void(SteppedReactor&)> then) : then_(std::move(then)) {}

  /// Calls the first timer that was set.
  void fire_first_timer() {
    const auto fire = timers_.begin()->second;
    timers_.erase(timers_.begin());
    fire();
  }
  /// Tells of one event. False: there is none for a long while.
  bool step() {
    for (const auto& [handle, watch] : watches_) {
      const short wanted = (watch.events & EPOLLOUT) != 0 ? POLLOUT : POLLIN;
      pollfd entry{watch.fd, wanted, 0};
      if (poll(&entry, 1, 1) != 1) continue;
      const auto ready = watch.ready;  // May remove itself.
      ready(watch.events);
      return true;
    }
    return ++idle_ < 20'000;
  }
  std::size_t timers() const { return timers_.size(); }
  std::size_t watches() const { return watches_.size(); }

  Handle watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> ready) override {
    watches_[++last_] = {fd, events, std::move(ready)};
    return last_;
  }
  void modify(Handle handle, std::uint32_t events) override { watches_[handle].events = events; }
  Handle at(Nanos, std::function<void()> fire) override {
    timers_[++last_] = std::move(fire);
    return last_;
  }
  void remove(Handle handle) override {
    watches_.erase(handle);
    timers_.erase(handle);
  }
  void post(std::function<void()> task) override { task(); }
  void run_there(const std::function<void()>& task) override {
    task();
    if (const auto then = std::exchange(then_, nullptr)) then(*this);
  }
  void add(Progressor*) override {}
  void remove(Progressor*) override {}
  void notify() override {}

 private:
  struct Watch {
    int fd = -1;
    std::uint32_t events = 0;
    std::function<void(std::uint32_t)> ready;
  };
  std::function<void(SteppedReactor&)> then_;
  std::map<Handle, Watch> watches_;
  std::map<Handle, std::function<void()>> timers_;
  Handle last_ = 0;
  int idle_ = 0;
};

TEST(HostProbe, AnAnswerAfterItsEndStartsNothing) {
  const HandshakeKey key = make_handshake_key("job", "secret");
  auto silent = tcp_listen({"127.0.0.1", 0});  // Accepts in the kernel, and never says a word.
  auto listener = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(silent.ok() && listener.ok());
  const std::vector<HostPort> addresses{local_address(*listener), local_address(*silent)};
  std::unique_ptr<Acceptor> acceptor;
  std::atomic<bool> answered{false};
  Reactor::instance().run_there([&] {
    acceptor = std::make_unique<Acceptor>(
        Reactor::instance(), std::move(*listener), key, 1, 2,
        Acceptor::Events{.admit = [](const HandshakeHello&) { return HandshakeStatus::ok; },
                         .accepted = [&](Fd, const HandshakeHello&) { answered = true; },
                         .refused = {}});
  });

  HandshakeHello hello;
  hello.service = HandshakeService::probe;
  hello.rank = 0;
  hello.world = 2;
  SteppedReactor reactor([&](SteppedReactor& self) {
    self.fire_first_timer();  // Its time is over.
    EXPECT_EQ(self.watches(), addresses.size());
    while (self.watches() == addresses.size() && self.step()) {  // Until one call has ended.
    }
  });
  const ReachRow row =
      HostProbe(reactor, key, hello, true).run({{1, 1, "rank 1", addresses}}, std::chrono::seconds(1));
  Reactor::instance().run_there([&] { acceptor.reset(); });
  EXPECT_TRUE(answered);
  ASSERT_EQ(row.size(), 1u);
  EXPECT_EQ(row.front().address, "127.0.0.1");
  EXPECT_EQ(reactor.timers(), 0u) << "a timer of an object that is gone";
}

/// As by an acceptor that has no room for it.
TEST(HostProbe, TriesAgainWhereAConnectionWasBrokenOff) {
  const HandshakeKey key = make_handshake_key("job", "secret");
  auto listener = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const HostPort address = local_address(*listener);
  std::unique_ptr<Acceptor> acceptor;
  HandshakeHello hello;
  hello.service = HandshakeService::probe;
  hello.rank = 0;
  hello.world = 2;
  SteppedReactor reactor([&](SteppedReactor& self) {
    pollfd called{listener->get(), POLLIN, 0};
    EXPECT_EQ(poll(&called, 1, 20'000), 1);
    accept_connection(*listener).value().reset();  // Hangs up.
    Reactor::instance().run_there([&] {
      acceptor = std::make_unique<Acceptor>(
          Reactor::instance(), std::move(*listener), key, 1, 2,
          Acceptor::Events{.admit = [](const HandshakeHello&) { return HandshakeStatus::ok; },
                           .accepted = [](Fd, const HandshakeHello&) {},
                           .refused = {}});
    });
    while (self.timers() > 0 && self.step()) {
    }
  });
  const ReachRow row =
      HostProbe(reactor, key, hello).run({{1, 1, "rank 1", {address}}}, std::chrono::seconds(1));
  Reactor::instance().run_there([&] { acceptor.reset(); });
  ASSERT_EQ(row.size(), 1u);
  EXPECT_EQ(row.front().address, "127.0.0.1") << row.front().why;
}

// What this side lacks closes no way.
TEST(HostProbe, SaysNothingOfAHostThatItCouldNotTry) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP();
  const HandshakeKey key = make_handshake_key("job", "secret");
  const std::vector<ProbeTarget> targets{
      {1, 1, "rank 1", {local_address(tcp_listen({"127.0.0.1", 0}).value())}}};
  const auto probe = [&] {
    return HostProbe(Reactor::instance(), key, HandshakeHello(), false)
        .run(targets, std::chrono::seconds(20));
  };
  ASSERT_EQ(probe().size(), 1u) << "nobody listens there";
  const lockstep::testing::NoDescriptorsLeft none;
  EXPECT_TRUE(probe().empty());
}

}  // namespace
}  // namespace lockstep::internal
