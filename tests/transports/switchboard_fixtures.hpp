// Ranks with a switchboard each, in one process; races for the address of one.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/bootstrap/exchange.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/transports/static_session.hpp"
#include "transports/tcp/address_race.hpp"
#include "transports/tcp/published_address.hpp"
#include "transports/tcp/switchboard.hpp"

namespace lockstep::internal::testing {

inline std::string fresh_store() {
  static std::atomic<int> number{0};
  return "switchboard-test-" + std::to_string(++number);
}

struct Rank {
  std::unique_ptr<StaticSession> session;
  std::unique_ptr<Switchboard> board;
};

/// Each makes its own, which takes all of them.
inline void make_boards(std::vector<Rank>& ranks) {
  std::vector<std::thread> threads;
  for (Rank& rank : ranks) {
    threads.emplace_back([&rank] {
      auto board = Switchboard::make(*rank.session, real_env(), std::chrono::seconds(60));
      ASSERT_TRUE(board.ok()) << board.status().message();
      rank.board = std::move(*board);
    });
  }
  for (auto& thread : threads) thread.join();
}

/// Ranks that met, with the secret of each.
inline std::vector<Rank> meet(const std::vector<std::string>& secrets) {
  const std::string store = fresh_store();
  const int size = static_cast<int>(secrets.size());
  std::vector<Rank> ranks(secrets.size());
  for (int r = 0; r < size; ++r) {
    const auto index = static_cast<std::size_t>(r);
    ranks[index].session = std::make_unique<StaticSession>(r, size, store, secrets[index]);
  }
  make_boards(ranks);
  return ranks;
}

/// Waits until take() has something to say.
inline Result<std::optional<Fd>> await(Switchboard& board, int peer, std::uint64_t channel) {
  const Fd bell(eventfd(0, EFD_CLOEXEC));
  board.attach(bell.get());
  auto result = board.take(peer, channel);
  while (result.ok() && !*result) {
    pollfd entry{bell.get(), POLLIN, 0};
    if (poll(&entry, 1, 20'000) != 1) {
      ADD_FAILURE() << "no connection to rank " << peer;
      break;
    }
    eventfd_t value = 0;
    eventfd_read(bell.get(), &value);
    result = board.take(peer, channel);
  }
  board.detach(bell.get());
  return result;
}

inline void expect_connected(Result<std::optional<Fd>>& a, Result<std::optional<Fd>>& b) {
  ASSERT_TRUE(a.ok()) << a.status().message();
  ASSERT_TRUE(b.ok()) << b.status().message();
  ASSERT_TRUE(*a && *b);
  EXPECT_EQ(local_address(**a).text(), remote_address(**b).text());
  EXPECT_EQ(remote_address(**a).text(), local_address(**b).text());
}

/// Where a rank publishes its addresses.
inline std::string address_key(int rank) { return exchange_key(kPublishedName, rank); }

/// What a race for the board of a rank ends with.
struct RaceResult {
  AddressRace::Outcome outcome{};
  Status why;
  std::string address;
};

inline HandshakeHello hello_of(int rank, int peer) {
  HandshakeHello hello;
  hello.rank = rank;
  hello.world = 2;
  hello.peer = peer;
  return hello;
}

/// Real time, but for what a test adds.
class AdvancedEnv final : public Env {
 public:
  Nanos now() noexcept override { return real_env().now() + ahead_.load(); }
  std::uint64_t random() noexcept override { return real_env().random(); }
  void wake_at(Nanos when) noexcept override { real_env().wake_at(when); }
  void advance(std::chrono::nanoseconds by) { ahead_ += to_nanos(by); }

 private:
  std::atomic<Nanos> ahead_{0};
};

inline RaceResult race_for(std::vector<HostPort> addresses, const std::string& secret,
                           const HandshakeHello& hello = hello_of(0, 1), Env& env = real_env()) {
  Reactor& reactor = Reactor::instance();
  std::promise<RaceResult> promise;
  std::unique_ptr<AddressRace> race;
  reactor.run_there([&] {
    race = std::make_unique<AddressRace>(
        reactor, env, make_handshake_key("job", secret), hello, std::move(addresses),
        [&](AddressRace::Outcome outcome, Status why) {
          const bool connected = outcome == AddressRace::Outcome::connected;
          promise.set_value(
              {outcome, std::move(why), connected ? remote_address(race->take_socket()).text() : ""});
        });
    race->start();
  });
  RaceResult result = promise.get_future().get();
  reactor.run_there([&] { race.reset(); });
  return result;
}

}  // namespace lockstep::internal::testing
