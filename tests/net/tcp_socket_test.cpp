#include "lib/net/tcp_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <string_view>

#include "lib/base/env.hpp"
#include "lib/net/port_holder.hpp"
#include "lib/net/stream_io.hpp"
#include "tests/net/connected_pair.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/no_descriptors_left.hpp"
#include "tests/support/refused_call.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

TEST(HostPort, ParsesWhatItPrints) {
  for (const char* text : {"10.0.0.1:5000", "node-2:0", "[::1]:65535"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(parsed.value().text(), text);
  }
}

TEST(HostPort, RefusesWhatIsNoAddress) {
  for (const char* text :
       {"", "node", ":80", "node:", "node:65536", "node:-1", "node:80x", "::1:80", "[]:80"}) {
    const auto parsed = parse_host_port(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), ErrorCode::configuration);
  }
}

TEST(TcpSocket, ConnectsOverBothFamilies) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    auto listener = tcp_listen({host, 0});
    if (!listener.ok() && std::string(host) == "::1") GTEST_SKIP() << "no IPv6 here";
    ASSERT_TRUE(listener.ok()) << listener.status().message();
    const HostPort at = local_address(*listener);
    EXPECT_EQ(at.host, host);
    EXPECT_NE(at.port, 0);
    auto client = tcp_connect(at, milliseconds(5000), real_env());
    ASSERT_TRUE(client.ok()) << client.status().message();
    const Fd served(accept(listener->get(), nullptr, nullptr));
    EXPECT_EQ(remote_address(served).text(), local_address(*client).text());
  }
}

TEST(TcpSocket, TakenPortNamesItsHolder) {
  auto first = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok());
  const HostPort at = local_address(*first);
  const auto second = tcp_listen(at);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().message(),
            "cannot listen on " + at.text() + ": the port is already taken by process " +
                std::to_string(getpid()) + " (tcp_socket_test); end that process, or choose another port");
}

// The kernel keeps a connection for a minute on the side that ended it first.
TEST(TcpSocket, APortIsFreeAsSoonAsItsListenerIsGone) {
  auto listener = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const HostPort at = local_address(*listener);
  auto caller = tcp_connect(at, std::chrono::seconds(60), real_env());
  ASSERT_TRUE(caller.ok()) << caller.status().message();
  pollfd entry{listener->get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 60'000), 1);
  Fd called(accept(listener->get(), nullptr, nullptr));
  ASSERT_TRUE(called);
  called.reset();
  entry = {caller->get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 60'000), 1);
  caller->reset();
  listener->reset();
  const auto again = tcp_listen(at);
  EXPECT_TRUE(again.ok()) << again.status().message();
}

// Another process has the same port of another address of this host.
TEST(TcpSocket, TakenPortNamesWhoHoldsItAtThatAddress) {
  auto first = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(first.ok());
  const HostPort there{"127.0.0.2", local_address(*first).port};
  const testing::Shared<std::atomic<bool>> listens;
  const auto children = testing::start_forked(1, [&](int) {
    const auto second = tcp_listen(there);
    listens->store(true);
    ASSERT_TRUE(second.ok()) << second.status().message();
    pause();
  });
  testing::wait_until([&] { return listens->load(); });
  const auto holder_of = [](const HostPort& at) { return tcp_listen(at).status().message(); };
  EXPECT_NE(holder_of(local_address(*first)).find("process " + std::to_string(getpid()) + " "),
            std::string::npos);
  EXPECT_NE(holder_of(there).find("process " + std::to_string(children[0]) + " "), std::string::npos);
  kill(children[0], SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(testing::wait_for(children[0])));
}

TEST(TcpSocket, TakenPortNamesAHolderWhoseAddressIsMapped) {
  auto first = tcp_listen({"::ffff:127.0.0.1", 0});
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = tcp_listen({"127.0.0.1", local_address(*first).port});
  EXPECT_NE(second.status().message().find("process " + std::to_string(getpid()) + " "), std::string::npos)
      << second.status().message();
}

/// In a child with a network of its own, where IPv6 listeners hear IPv6 only unless they say otherwise.
/// Whether that can be had here.
bool enter_v6_only_network() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const Fd setting(open("/proc/sys/net/ipv6/bindv6only", O_WRONLY | O_CLOEXEC));
  return setting && write(setting.get(), "1", 1) == 1;
}

TEST(TcpSocket, EverywhereIsIPv4TooWhateverTheSystemPrefers) {
  const testing::Shared<std::atomic<bool>> tried;
  testing::run_forked(1, [&](int) {
    if (!enter_v6_only_network()) return;
    const auto listener = tcp_listen({"::", 0});
    if (!listener.ok()) return;  // No IPv6.
    tried->store(true);
    int v6_only = 1;
    socklen_t size = sizeof v6_only;
    ASSERT_EQ(getsockopt(listener.value().get(), IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, &size), 0);
    EXPECT_EQ(v6_only, 0);
  });
  if (!tried->load()) GTEST_SKIP() << "no network of its own, or no IPv6";
}

/// In a child with a network of its own, whose programs get port 40000 alone. Whether that can be had here.
bool enter_network_with_one_port() {
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const Fd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq up{};
  std::strcpy(up.ifr_name, "lo");
  up.ifr_flags = IFF_UP;
  if (ioctl(any.get(), SIOCSIFFLAGS, &up) != 0) return false;
  const Fd setting(open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC));
  return setting && write(setting.get(), "40000 40000", 11) == 11;
}

TEST(TcpSocket, WhereNoPortIsFreeThatIsWhatIsSaid) {
  constexpr std::string_view kNext =
      "widen net.ipv4.ip_local_port_range, or end programs that hold ports of it";
  const testing::Shared<std::atomic<bool>> tried;
  testing::run_forked(1, [&](int) {
    if (!enter_network_with_one_port()) return;
    tried->store(true);
    const auto only = tcp_listen({"127.0.0.1", 0});
    ASSERT_TRUE(only.ok()) << only.status().message();
    EXPECT_EQ(tcp_listen({"127.0.0.1", 0}).status().message(),
              "cannot listen on 127.0.0.1:0: no port is free there: " + std::string(kNext));
    const HostPort at = local_address(only.value());
    const auto blocking = tcp_connect(at, milliseconds(1000), real_env());
    EXPECT_TRUE(blocking.status().message().ends_with(kNext)) << blocking.status().message();
    const auto started = start_connect(at);  // No peer's death.
    EXPECT_TRUE(started.status().message().ends_with(kNext)) << started.status().message();
    EXPECT_TRUE(started.status().is_own_lack());
  });
  if (!tried->load()) GTEST_SKIP() << "no network of its own";
}

TEST(TcpSocket, PortWithoutListenerHasNoHolder) {
  const sockaddr_in nowhere{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  EXPECT_EQ(describe_port_holder(reinterpret_cast<const sockaddr&>(nowhere)), "an unknown process");
}

// The kernel may give the port that is called to the caller, whose call then reaches itself. It goes through
// all of them in turn.
TEST(TcpSocket, NobodyReachesItself) {
  const HostPort closed = closed_callers_port();
  for (int i = 0; i < kMoreThanCallersPorts; ++i)
    ASSERT_FALSE(tcp_connect(closed, milliseconds(1000), real_env()).ok()) << "at call " << i;
}

TEST(TcpSocket, RefusedAndUnknownAddressesSaySo) {
  const Fd bound = bind_to_loopback();
  const HostPort at = local_address(bound);
  const auto refused = tcp_connect(at, milliseconds(1000), real_env());
  EXPECT_EQ(refused.status().message(), "cannot connect to " + at.text() + ": Connection refused");
  const auto unknown = tcp_connect({"no-such-host.invalid", 1}, milliseconds(1000), real_env());
  EXPECT_NE(unknown.status().message().find("cannot find the address of \"no-such-host.invalid\""),
            std::string::npos);
}

TEST(TcpSocket, WhatThisProcessLacksIsNotTakenForTheOtherSides) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP() << "AddressSanitizer needs descriptors";
  const lockstep::testing::NoDescriptorsLeft none;
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const Status lack = tcp_connect({host, 1}, milliseconds(1000), real_env()).status();
    EXPECT_EQ(lack.code(), ErrorCode::system) << lack.message();
    EXPECT_NE(lack.message().find("Too many open files: raise the limit of open files"), std::string::npos)
        << lack.message();
  }
}

TEST(TcpSocket, ALoopbackThatIsDownIsNamed) {
  const testing::Shared<std::atomic<bool>> tried;
  testing::run_forked(1, [&](int) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return;
    tried->store(true);
    const Status down = tcp_connect({"127.0.0.1", 1}, milliseconds(1000), real_env()).status();
    EXPECT_EQ(down.code(), ErrorCode::system) << down.message();
    EXPECT_NE(down.message().find("is down in this host or container: bring it up (`ip link set lo up`)"),
              std::string::npos)
        << down.message();
  });
  if (!tried->load()) GTEST_SKIP() << "no network of its own here";
}

TEST(TcpSocket, WhoMayNotCallBlamesNobodyElse) {
  testing::run_forked(1, [&](int) {
    ASSERT_TRUE(lockstep::testing::refuse_call(SYS_connect, EPERM));
    const Status waiting = tcp_connect({"127.0.0.1", 1}, milliseconds(1000), real_env()).status();
    const Status at_once = start_connect({"127.0.0.1", 1}).status();
    for (const Status& refused : {waiting, at_once}) {
      EXPECT_EQ(refused.code(), ErrorCode::system) << refused.message();
      EXPECT_NE(refused.message().find("Operation not permitted: a firewall of this host, or the seccomp"),
                std::string::npos)
          << refused.message();
    }
  });
}

TEST(TcpSocket, NobodyListensWhereConnectionsCannotBeAccepted) {
  testing::run_forked(1, [&](int) {
    auto before = tcp_listen({"127.0.0.1", 0});
    ASSERT_TRUE(before.ok()) << before.status().message();
    const auto caller = tcp_connect(local_address(*before), milliseconds(5000), real_env());
    ASSERT_TRUE(caller.ok()) << caller.status().message();
    ASSERT_TRUE(lockstep::testing::refuse_call(SYS_accept4, EPERM));
    EXPECT_EQ(accept_connection(*before).status().code(), ErrorCode::system) << "it would try for ever";
    EXPECT_EQ(tcp_listen({"127.0.0.1", 0}).status().message(),
              "cannot listen on 127.0.0.1:0: taking connections is refused here (accept4: Operation not "
              "permitted): let the container's seccomp profile allow accept4");
  });
}

TEST(TcpSocket, SilenceSaysWhatItMayBe) {
  const Fd listener = bind_to_loopback();
  ASSERT_EQ(listen(listener.get(), 0), 0);  // Once its queue is full the kernel drops what comes.
  const HostPort at = local_address(listener);
  std::vector<Fd> queue;
  for (;;) {
    auto one = tcp_connect(at, std::chrono::milliseconds(200), real_env());
    if (one.ok() && queue.size() < 100) {
      queue.push_back(std::move(*one));
      continue;
    }
    EXPECT_EQ(one.status().code(), ErrorCode::timeout);
    EXPECT_EQ(one.status().message(), "no answer from " + at.text() +
                                          " (its host is down or busy, or a firewall keeps the port closed)");
    return;
  }
}

TEST(TcpSocket, Loopback) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("127.9.9.9"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
}

}  // namespace
}  // namespace lockstep::internal
