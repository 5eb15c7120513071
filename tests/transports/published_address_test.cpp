// Where a rank listens, and the text in which its peers read of it.
#include "transports/tcp/published_address.hpp"

#include <gtest/gtest.h>

#include "lib/net/interfaces.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/support/scoped_variable.hpp"
#include "tests/transports/static_session.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

using testing::ScopedVariable;
using testing::StaticSession;

constexpr const char* kStore = "published-address-test";  // Nobody meets there.

TEST(PublishedAddress, SurvivesItsText) {
  const PublishedAddress mine{{{"10.0.0.1", 5}, {"fd00::1", 65535}}, 3};
  EXPECT_EQ(mine.text(), "10.0.0.1:5 [fd00::1]:65535 3");
  auto same = PublishedAddress::parse(mine.text());
  ASSERT_TRUE(same.ok());
  EXPECT_EQ(same->text(), mine.text());
  EXPECT_EQ(PublishedAddress::parse("10.0.0.1:5 10.1.0.1:6 4/2").value().rails, 2);
}

// A peer's, or a damaged store's.
TEST(PublishedAddress, AnythingElseIsRefused) {
  std::string many;
  for (std::size_t i = 0; i < kMaxAddresses; ++i) many += "10.0.0.1:5 ";
  EXPECT_TRUE(PublishedAddress::parse(many + "1").ok());
  for (const std::string& strange :
       {std::string(), std::string("4"), std::string("10.0.0.1:5"), std::string("10.0.0.1 4"),
        std::string("10.0.0.1:99999 4"), std::string("10.0.0.1:5 0"), std::string("10.0.0.1:5 -1"),
        "10.0.0.1:5 " + std::to_string(kMaxSockets + 1), std::string("10.0.0.1:5 4x"),
        std::string("10.0.0.1:5 4/"), std::string("10.0.0.1:5 4/0"), std::string("10.0.0.1:5 4/2"),
        std::string("10.0.0.1:5 4/1/1"), many + "10.0.0.1:5 1"}) {
    const auto parsed = PublishedAddress::parse(strange);
    EXPECT_EQ(parsed.status().code(), ErrorCode::internal) << strange;
  }
}

TEST(ListenForPeers, HonoursTheInterfaceVariable) {
  const StaticSession session(0, 2, kStore);
  {
    const ScopedVariable ifname("LOCKSTEP_IFNAME", "=lo");
    auto listeners = listen_for_peers(session);
    ASSERT_TRUE(listeners.ok()) << listeners.status().message();
    EXPECT_EQ(local_address(listeners->sockets.front()).host, "127.0.0.1");
    EXPECT_NE(local_address(listeners->sockets.front()).port, 0);
    EXPECT_EQ(listeners->rails, 1);
  }
  const ScopedVariable ifname("LOCKSTEP_IFNAME", "nosuch");
  auto listener = listen_for_peers(session);
  ASSERT_FALSE(listener.ok());
  EXPECT_NE(listener.status().message().find("LOCKSTEP_IFNAME=nosuch"), std::string::npos);
  EXPECT_NE(listener.status().message().find("lo (127.0.0.1)"), std::string::npos);
}

TEST(ListenForPeers, LeavesLoopbackOnlyWithASecret) {
  auto available = interface_addresses();
  ASSERT_TRUE(available.ok());
  if (!usable_interfaces(*available, {}).ok()) GTEST_SKIP() << "this machine has no network interface";
  StaticSession open(0, 2, kStore, "");
  open.move_away(1);
  auto refused = listen_for_peers(open);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), ErrorCode::configuration);
  EXPECT_NE(refused.status().message().find("LOCKSTEP_INSECURE=1"), std::string::npos);
  {
    const ScopedVariable insecure("LOCKSTEP_INSECURE", "1");
    EXPECT_TRUE(listen_for_peers(open).ok());
  }
  StaticSession secret(0, 2, kStore, "s3cret");
  secret.move_away(1);
  auto listeners = listen_for_peers(secret);
  ASSERT_TRUE(listeners.ok());
  for (const Fd& listener : listeners->sockets) EXPECT_NE(local_address(listener).host.substr(0, 4), "127.");
}

}  // namespace
}  // namespace lockstep::internal
