// Where rank 0 listens when the place where ranks meet is a name that leads to a loopback address on its
// host, as Debian's installer makes them: this program's getaddrinfo(3) knows one.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <cstring>

#include "lib/bootstrap/rendezvous.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/bootstrap/store_fixtures.hpp"

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** list) {
  using Function = int(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool numeric = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  const bool is_ours = name != nullptr && std::strcmp(name, "own.test") == 0 && !numeric;
  return real(is_ours ? "127.0.1.1" : name, service, hints, list);
}

namespace lockstep::internal {
namespace {

/// A port that was free at all addresses a moment ago.
std::uint16_t free_port() { return local_address(tcp_listen({"0.0.0.0", 0}).value()).port; }

/// Of rank 0, at a port that nobody else takes meanwhile.
Meeting meet_at_own_name(const std::string& secret) {
  for (;;) {
    Launch launch;
    launch.world_size = 2;
    launch.rendezvous = "tcp://own.test:" + std::to_string(free_port());
    auto meeting = open_meeting(launch, secret, 1, Deadline(real_env(), kSoon), real_env());
    if (meeting.ok()) return std::move(*meeting);
    EXPECT_NE(meeting.status().message().find("already taken"), std::string::npos)
        << meeting.status().message();
    if (testing::Test::HasFailure()) return {};
  }
}

TEST(LoopbackName, WithASecretRank0ListensOnAllAddresses) {
  const Meeting meeting = meet_at_own_name("s3cret");
  ASSERT_TRUE(meeting.hosted);
  const std::uint16_t port = meeting.hosted->server().address().port;
  EXPECT_TRUE(tcp_connect({"127.0.0.1", port}, kSoon, real_env()).ok());
  EXPECT_EQ(meeting.hint, "");
}

// Whoever reaches the port could join.
TEST(LoopbackName, WithoutASecretRank0StaysThereAndKnowsWhy) {
  const Meeting meeting = meet_at_own_name("");
  ASSERT_TRUE(meeting.hosted);
  EXPECT_EQ(meeting.hosted->server().address().host, "own.test");
  EXPECT_EQ(meeting.hint,
            "own.test leads to a loopback address here (see /etc/hosts), where ranks of other hosts are not "
            "heard; set "
            "LOCKSTEP_SECRET_FILE and rank 0 listens on all addresses");
}

}  // namespace
}  // namespace lockstep::internal
