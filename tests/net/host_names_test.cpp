// Names with several addresses: this program's getaddrinfo(3) knows two of its own.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/net/tcp_socket.hpp"

namespace {

std::vector<const char*> addresses_of(const char* name) {
  if (name == nullptr) return {};
  // One of another host (RFC 5737), and one twice, as a hosts file may have them.
  if (std::strcmp(name, "several.test") == 0) return {"127.3.0.1", "203.0.113.1", "127.3.0.2", "127.3.0.1"};
  if (std::strcmp(name, "elsewhere.test") == 0) return {"203.0.113.1", "203.0.113.2"};
  return {};
}

}  // namespace

extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** list) {
  using Function = int(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const auto addresses = addresses_of(name);
  if (addresses.empty() || (hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0))
    return real(name, service, hints, list);
  for (const char* address : addresses) {
    if (const int error = real(address, service, hints, list); error != 0) return error;
    while (*list != nullptr) list = &(*list)->ai_next;
  }
  return 0;
}

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

std::string failure_to_connect(const HostPort& to) {
  return tcp_connect(to, milliseconds(1'000), real_env()).status().message();
}

TEST(HostNames, EveryAddressOfThisHostIsListenedOn) {
  const auto sockets = tcp_listen_everywhere({"several.test", 0});
  ASSERT_TRUE(sockets.ok()) << sockets.status().message();
  ASSERT_EQ(sockets.value().size(), 2u);
  const std::uint16_t port = local_address(sockets.value().front()).port;
  for (const char* address : {"127.3.0.1", "127.3.0.2"})
    EXPECT_EQ(failure_to_connect({address, port}), "") << address;
}

TEST(HostNames, APortThatAnotherHasAtOneAddressIsTaken) {
  const auto other = tcp_listen({"127.3.0.2", 0});
  ASSERT_TRUE(other.ok()) << other.status().message();
  const HostPort at{"several.test", local_address(other.value()).port};
  EXPECT_EQ(tcp_listen_everywhere(at).status().message(),
            "cannot listen on " + at.text() + " (127.3.0.2): the port is already taken by process " +
                std::to_string(getpid()) + " (host_names_test); end that process, or choose another port");
}

TEST(HostNames, OfOneHostCountAsOneWithAllTheirAddresses) {
  const auto sockets = tcp_listen_everywhere({"127.3.0.1,127.3.0.2,several.test", 0});
  ASSERT_TRUE(sockets.ok()) << sockets.status().message();
  ASSERT_EQ(sockets.value().size(), 2u);
  const std::uint16_t port = local_address(sockets.value().front()).port;
  EXPECT_EQ(local_address(sockets.value().back()).port, port);
  for (const char* host : {"127.3.0.9,127.3.0.1", "127.3.0.2,127.3.0.9"})
    EXPECT_EQ(failure_to_connect({host, port}), "") << host;
  const std::string text = "127.3.0.8,127.3.0.9:" + std::to_string(port);
  EXPECT_EQ(failure_to_connect({"127.3.0.8,127.3.0.9", port}),
            "cannot connect to " + text + " (127.3.0.8): Connection refused, cannot connect to " + text +
                " (127.3.0.9): Connection refused");
  EXPECT_TRUE(is_numeric_address("127.0.0.1,::1"));
  EXPECT_FALSE(is_loopback("127.0.0.1,203.0.113.1"));
  EXPECT_FALSE(check_host("127.0.0.1,no.such.host.invalid").ok());
}

TEST(HostNames, AreElsewhereWhereNoAddressIsOfThisHost) {
  EXPECT_TRUE(is_elsewhere("elsewhere.test"));
  for (const char* host : {"several.test", "127.0.0.1", "0.0.0.0", "::", "no.such.host.invalid"})
    EXPECT_FALSE(is_elsewhere(host)) << host;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_FALSE(is_elsewhere("203.0.113.1")) << "without a descriptor nobody knows";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(HostNames, WhatIsWrongWithEachAddressIsSaid) {
  EXPECT_EQ(tcp_listen_everywhere({"elsewhere.test", 5000}).status().message(),
            "cannot listen on elsewhere.test:5000 (203.0.113.1): Cannot assign requested address, "
            "cannot listen on elsewhere.test:5000 (203.0.113.2): Cannot assign requested address");
  const std::uint16_t closed = local_address(tcp_listen({"127.3.0.1", 0}).value()).port;
  const std::string said = failure_to_connect({"several.test", closed});
  for (const char* address : {"127.3.0.1", "203.0.113.1", "127.3.0.2"})
    EXPECT_NE(said.find("several.test:" + std::to_string(closed) + " (" + address + ")"), std::string::npos)
        << said;
}

}  // namespace
}  // namespace lockstep::internal
