// Which interfaces are rails, and which connections go over each, in networks that the test makes.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <string>

#include "tests/support/eventually.hpp"
#include "tests/support/forked.hpp"
#include "tests/transports/switchboard_fixtures.hpp"
#include "transports/tcp/published_address.hpp"
#include "transports/tcp/tcp_transport.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::eventually;
using testing::await;
using testing::make_boards;
using testing::Rank;
using testing::StaticSession;

/// Runs in a network of its own with these addresses of two interfaces; false where none may be made.
bool in_network(const std::string& first, const std::string& second, const std::function<void()>& body) {
  const testing::Shared<std::atomic<bool>> made;
  testing::run_forked(1, [&](int) {
    std::string make = "ip link add ra type veth peer name pa && ip link add rb type veth peer name pb";
    for (const char* name : {"lo", "ra", "pa", "rb", "pb"})
      make += std::string(" && ip link set up dev ") + name;
    const auto add = [&](const std::string& addresses, const char* name) {
      std::istringstream list(addresses);
      for (std::string one; list >> one;)
        make += " && ip address add " + one + (one.find(':') != one.npos ? " nodad" : "") + " dev " + name;
    };
    add(first, "ra");
    add(second, "rb");
    if (::unshare(CLONE_NEWNET) != 0 || std::system(("(" + make + ") 2> /dev/null").c_str()) != 0) return;
    *made = true;
    body();
  });
  return *made;
}

/// 0 where no network may be made.
int rails_of(const std::string& first, const std::string& second) {
  const testing::Shared<std::atomic<int>> rails;
  in_network(first, second, [&] {
    StaticSession session(0, 2, "rails", "s3cret");
    session.move_away(1);
    auto listeners = listen_for_peers(session);
    ASSERT_TRUE(listeners.ok()) << listeners.status().message();
    *rails = listeners->rails;
  });
  return *rails;
}

/// Two ranks of two hosts, with links of two connections each: of less all that answer need not be known.
std::vector<Rank> meet_far_apart() {
  setenv("LOCKSTEP_TCP_SOCKETS", "2", 1);
  std::vector<Rank> ranks(2);
  for (const int r : {0, 1}) {
    Rank& rank = ranks[static_cast<std::size_t>(r)];
    rank.session = std::make_unique<StaticSession>(r, 2, "far apart", "s3cret");
    rank.session->move_away(1);
  }
  make_boards(ranks);
  return ranks;
}

/// Where rank 1 was called.
std::string called_at(Rank& rank, std::uint64_t channel) {
  auto socket = await(*rank.board, 0, channel);
  return socket.ok() && *socket ? local_address(**socket).host : "nowhere";
}

TEST(ListenForPeers, RailsAreInterfacesOfOneKindFromTheFirstOn) {
  const int two = rails_of("10.97.0.1/24", "10.98.0.1/24");
  if (two == 0) GTEST_SKIP() << "no network of its own may be made here";
  EXPECT_EQ(two, 2);
  EXPECT_EQ(rails_of("10.97.0.1/24 10.98.0.1/24", ""), 1) << "one interface";
  EXPECT_EQ(rails_of("10.97.0.1/24 10.98.0.1/24", "10.99.0.1/24"), 1) << "the second address is no rail";
  EXPECT_EQ(rails_of("10.97.0.1/24", "fd97::1/64"), 1) << "peers may reach one kind only";
}

/// Of all that this process has.
std::set<std::string> hosts_of_connections() {
  std::set<std::string> hosts;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const Fd copy(dup(std::stoi(entry.path().filename())));
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const bool connected = getpeername(copy.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    if (connected && peer.ss_family == AF_INET) hosts.insert(local_address(copy).host);
  }
  return hosts;
}

// The lower rank calls, for itself or for the other one that wants to be called.
TEST(Rails, ConnectionsTakeTurnsOnThem) {
  const bool made = in_network("10.97.0.1/24", "10.98.0.1/24", [] {
    auto ranks = meet_far_apart();
    const auto rails = ranks[1].board->addresses();
    ASSERT_EQ(rails.size(), 2u);
    for (const std::size_t wanting : {0u, 1u}) {
      for (const std::size_t rail : {0u, 1u, 2u}) {
        const std::uint64_t channel = 10 * wanting + rail;
        ranks[wanting].board->want(static_cast<int>(1 - wanting), channel, static_cast<int>(rail));
        EXPECT_EQ(called_at(ranks[1], channel), rails[rail % 2].host) << wanting << " wants rail " << rail;
      }
    }
  });
  if (!made) GTEST_SKIP() << "no network of its own may be made here";
}

TEST(Rails, ALinkUsesAllOfThem) {
  const bool made = in_network("10.97.0.1/24", "10.98.0.1/24", [] {
    auto ranks = meet_far_apart();
    constexpr int kWorldRanks[] = {0, 1};
    std::vector<std::unique_ptr<Transport>> ends;
    for (const int r : {0, 1}) {
      auto end = make_tcp_transport(7, r, kWorldRanks, *ranks[static_cast<std::size_t>(r)].board);
      ends.push_back(std::move(*end));
    }
    EXPECT_TRUE(eventually([&] {
      const bool called = *ends[0]->link(1, Channel::collective) != nullptr;
      return (*ends[1]->link(0, Channel::collective) != nullptr) & called;
    }));
    EXPECT_EQ(hosts_of_connections(), (std::set<std::string>{"10.97.0.1", "10.98.0.1"}));
    for (const auto& end : ends) end->close();
  });
  if (!made) GTEST_SKIP() << "no network of its own may be made here";
}

}  // namespace
}  // namespace lockstep::internal
