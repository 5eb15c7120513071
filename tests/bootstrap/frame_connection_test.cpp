// How much waits for a peer that does not read.
#include "lib/bootstrap/frame_connection.hpp"

#include <gtest/gtest.h>

#include <future>

#include "lib/bootstrap/limits.hpp"
#include "tests/bootstrap/store_fixtures.hpp"
#include "tests/net/connected_pair.hpp"

namespace lockstep::internal {
namespace {

TEST(FrameConnection, WhoReadsNothingIsCutOff) {
  Reactor& reactor = Reactor::instance();
  SilenceWatch silence(reactor, real_env());
  ConnectedPair pair = connect_pair();
  std::promise<void> closed;
  std::shared_ptr<FrameConnection> connection;
  reactor.run_there([&] {
    connection = FrameConnection::open(reactor, silence, std::move(pair.server), kMaxRequestBytes,
                                       {.frame = [](std::span<const std::byte>) { return Status(); },
                                        .closed = [&](const Status&) { closed.set_value(); }});
    const std::string frame(kMaxUnsentBytes / 8, 'x');
    for (int i = 0; i < 10; ++i) connection->send(frame);  // The last but one is more than may wait.
  });
  EXPECT_EQ(closed.get_future().wait_for(kSoon), std::future_status::ready);
  reactor.run_there([&] { connection.reset(); });
}

}  // namespace
}  // namespace lockstep::internal
