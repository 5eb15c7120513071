// Which interfaces are rails, in networks that the test makes.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/support/forked.hpp"
#include "tests/transports/static_session.hpp"
#include "transports/tcp/published_address.hpp"

namespace lockstep::internal {
namespace {

using testing::StaticSession;

/// In a network of its own, with these addresses of two interfaces; 0 where none may be made.
int rails_of(const std::string& first, const std::string& second) {
  const testing::Shared<std::atomic<int>> rails;
  testing::run_forked(1, [&](int) {
    std::string make = "ip link add ra type veth peer name pa && ip link add rb type veth peer name pb";
    for (const char* name : {"ra", "pa", "rb", "pb"}) make += std::string(" && ip link set up dev ") + name;
    const auto add = [&](const std::string& addresses, const char* name) {
      std::istringstream list(addresses);
      for (std::string one; list >> one;)
        make += " && ip address add " + one + (one.find(':') != one.npos ? " nodad" : "") + " dev " + name;
    };
    add(first, "ra");
    add(second, "rb");
    if (::unshare(CLONE_NEWNET) != 0 || std::system(("(" + make + ") 2> /dev/null").c_str()) != 0) return;
    StaticSession session(0, 2, "rails", "s3cret");
    session.move_away(1);
    auto listeners = listen_for_peers(session);
    ASSERT_TRUE(listeners.ok()) << listeners.status().message();
    *rails = listeners->rails;
  });
  return *rails;
}

TEST(ListenForPeers, RailsAreInterfacesOfOneKindFromTheFirstOn) {
  const int two = rails_of("10.97.0.1/24", "10.98.0.1/24");
  if (two == 0) GTEST_SKIP() << "no network of its own may be made here";
  EXPECT_EQ(two, 2);
  EXPECT_EQ(rails_of("10.97.0.1/24 10.98.0.1/24", ""), 1) << "one interface";
  EXPECT_EQ(rails_of("10.97.0.1/24 10.98.0.1/24", "10.99.0.1/24"), 1) << "the second address is no rail";
  EXPECT_EQ(rails_of("10.97.0.1/24", "fd97::1/64"), 1) << "peers may reach one kind only";
}

}  // namespace
}  // namespace lockstep::internal
