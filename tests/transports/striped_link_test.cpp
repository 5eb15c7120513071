// A link of several sockets, and a peer that deals its units in another way.
#include "transports/tcp/striped_link.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <vector>

#include "tests/transports/link_fixtures.hpp"
#include "transports/tcp/limits.hpp"
#include "transports/tcp/tcp_link.hpp"

namespace lockstep::internal {
namespace {

using testing::await_something;
using testing::connected_sockets;
using testing::Incoming;
using testing::pull;
using testing::SocketPair;

// A message of three units over two sockets, to which this test itself deals them.
struct Dealt {
  Dealt() {
    std::vector<std::unique_ptr<TcpLink>> theirs;
    for (int i = 0; i < 2; ++i) {
      SocketPair pair = connected_sockets();
      ours.push_back(std::make_unique<TcpLink>(std::move(pair.a), 1));
      theirs.push_back(std::make_unique<TcpLink>(std::move(pair.b), 0));
    }
    striped = std::move(*StripedLink::make(std::move(theirs), 0));
    FrameHeader announcement;
    announcement.reserved = 3 * kStripeUnit;
    deal(0, announcement);
  }
  void deal(std::size_t socket, const FrameHeader& header) {
    const std::vector<std::byte> payload(header.bytes);
    SendCursor cursor;
    EXPECT_TRUE(ours[socket]->send(header, payload, cursor).value());
  }

  std::vector<std::unique_ptr<TcpLink>> ours;
  std::unique_ptr<StripedLink> striped;
};

Status status_of_dealing(const FrameHeader& unit, std::size_t borrow_unit) {
  Dealt dealt;
  dealt.deal(0, unit);
  Incoming in(borrow_unit);
  Result<bool> got = false;
  for (int waited = 0; got.ok() && waited < 20'000; ++waited) {
    got = pull(*dealt.striped, in);
    if (got.ok()) static_cast<void>(poll(nullptr, 0, 1));
  }
  EXPECT_FALSE(pull(*dealt.striped, in).ok()) << "an error is final";
  return got.ok() ? Status() : got.status();
}

TEST(StripedLink, ASleeperWatchesTheSocketOfTheNextUnit) {
  Dealt dealt;
  FrameHeader unit;
  unit.bytes = kStripeUnit;
  dealt.deal(0, unit);
  Incoming in;
  while (in.received < kStripeUnit) ASSERT_TRUE(pull(*dealt.striped, in).ok());
  pollfd entry = dealt.striped->poll_entry();
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  unit.index = 1;
  dealt.deal(1, unit);
  await_something(*dealt.striped);
}

TEST(StripedLink, RefusesAPeerThatDealsInAnotherWay) {
  FrameHeader another, shorter;
  another.index = 1;
  another.bytes = kStripeUnit;
  shorter.bytes = 5;
  for (const FrameHeader& unit : {another, shorter}) {
    for (const std::size_t borrow_unit : {0, 8}) {
      const Status status = status_of_dealing(unit, borrow_unit);
      EXPECT_EQ(status.code(), ErrorCode::internal);
      EXPECT_EQ(status.culprit(), 0);
      EXPECT_NE(status.message().find("LOCKSTEP_TCP_SOCKETS"), std::string::npos) << status.message();
    }
  }
}

}  // namespace
}  // namespace lockstep::internal
