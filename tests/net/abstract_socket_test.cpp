// Sockets by name, and signs of life: what is seen of them, and when no more.
#include "lib/net/abstract_socket.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string>

#include "tests/support/forked.hpp"

namespace lockstep::internal {
namespace {

TEST(AbstractSocket, IsFoundByItsNameWhileItIsThere) {
  const Fd caller(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const std::string name = LifeSign::show()->name();
  EXPECT_FALSE(connect_abstract(caller, name));
  EXPECT_EQ(errno, ECONNREFUSED);
  {
    const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
        second(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    EXPECT_TRUE(bind_abstract(socket, name));
    EXPECT_FALSE(bind_abstract(second, name));
    EXPECT_EQ(errno, EADDRINUSE);
    EXPECT_TRUE(connect_abstract(caller, name));
  }
  EXPECT_FALSE(connect_abstract(caller, name));
}

TEST(AbstractSocket, NamesThatNoneCanHaveAreRefused) {
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (const std::string& name : {std::string(), std::string(108, 'x')}) {
    EXPECT_FALSE(bind_abstract(socket, name));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(is_down(name));
  }
  EXPECT_TRUE(bind_abstract(socket, LifeSign::show()->name() + std::string(50, 'x')));
}

TEST(LifeSign, IsUpAsLongAsItIsThere) {
  auto sign = LifeSign::show();
  ASSERT_TRUE(sign.ok()) << sign.status().message();
  const std::string name = sign->name();
  EXPECT_NE(name, LifeSign::show()->name());
  std::optional<LifeSign> holder(std::move(*sign));
  for (int look = 0; look < 100; ++look) EXPECT_FALSE(is_down(name));
  holder.reset();
  EXPECT_TRUE(is_down(name));
}

TEST(LifeSign, GoesDownWithItsProcess) {
  const testing::Shared<std::array<char, 64>> name;
  const testing::Shared<std::atomic<bool>> shown;
  const auto processes = testing::start_forked(1, [&](int) {
    auto sign = LifeSign::show();
    ASSERT_TRUE(sign.ok()) << sign.status().message();
    std::copy(sign->name().begin(), sign->name().end(), name->begin());
    shown->store(true);
    for (;;) ::pause();
  });
  testing::wait_until([&] { return shown->load(); });
  EXPECT_FALSE(is_down(name->data()));
  ::kill(processes[0], SIGKILL);
  EXPECT_EQ(testing::wait_for(processes[0]), SIGKILL);
  EXPECT_TRUE(is_down(name->data()));
}

}  // namespace
}  // namespace lockstep::internal
