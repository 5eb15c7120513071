// Links over real TCP sockets: every way in which a stream may be cut, and every way in which it may end.
#include "transports/tcp/tcp_link.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <new>

#include "lib/net/stream_io.hpp"
#include "tests/transports/link_fixtures.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

using testing::await_something;
using testing::connected_links;
using testing::connected_sockets;
using testing::Incoming;
using testing::LinkPair;
using testing::message;
using testing::Outgoing;
using testing::pattern;
using testing::pull;
using testing::push;
using testing::SocketPair;

// What the receiver says beforehand.
enum class Expects { nothing, what_comes, something_else };

// Sends `out` one after the other from `from` to `to` and checks what arrives.
void exchange(Link& from, Link& to, std::deque<Outgoing> out, std::size_t borrow_unit,
              Expects expects = Expects::nothing, bool room = false) {
  std::size_t received = 0;
  Incoming in(borrow_unit);
  std::size_t sending = 0;
  const auto expect_next = [&] {
    in.room = room;
    if (expects == Expects::nothing || received == out.size()) return;
    in.awaited = out[received].header;
    if (expects == Expects::something_else) in.awaited->bytes = 3 * in.awaited->bytes / 2 + 5000;
  };
  expect_next();
  while (received < out.size()) {
    if (sending < out.size()) {
      auto sent = push(from, out[sending]);
      ASSERT_TRUE(sent.ok()) << sent.status().message();
      if (*sent) ++sending;
    }
    auto got = pull(to, in);
    ASSERT_TRUE(got.ok()) << got.status().message();
    if (!*got) continue;
    ASSERT_EQ(in.header.sequence, out[received].header.sequence);
    ASSERT_EQ(in.header.bytes, out[received].header.bytes);
    ASSERT_EQ(in.header.reserved, 0u);
    ASSERT_TRUE(in.payload == out[received].payload) << "message " << received;
    in = Incoming(borrow_unit);
    ++received;
    expect_next();
  }
}

std::deque<Outgoing> messages_of_every_size() {
  std::deque<Outgoing> out;
  std::uint64_t seed = 1;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{8}, std::size_t{63}, std::size_t{1000},
        kPeekBytes - 64, kPeekBytes, std::size_t{100'001}, kStripeThreshold, kStripeThreshold + 1,
        kBounceBytes, kBounceBytes + 17, 5 * kStripeUnit, std::size_t{1'234'567}, std::size_t{5}}) {
    out.push_back(message(bytes, seed++));
  }
  return out;
}

class Links : public ::testing::TestWithParam<int> {};  // Number of sockets.
INSTANTIATE_TEST_SUITE_P(Sockets, Links, ::testing::Values(1, 2, 3));

TEST_P(Links, CarryMessagesOfEverySize) {
  LinkPair pair = connected_links(GetParam());
  const std::deque<Outgoing> out = messages_of_every_size();
  exchange(*pair.a, *pair.b, out, 0);
  exchange(*pair.b, *pair.a, out, 1);
  exchange(*pair.a, *pair.b, out, 4);
  exchange(*pair.a, *pair.b, out, 16);
  std::uint64_t bytes = 0;
  for (const Outgoing& each : out) bytes += sizeof(FrameHeader) + each.payload.size();
  EXPECT_GE(pair.a->bytes_sent(), 3 * bytes);
  // What is cut for several sockets has more headers.
  EXPECT_EQ(pair.a->bytes_sent() == 3 * bytes, GetParam() == 1);
}

TEST_P(Links, CarryWhatIsAwaitedAndWhatIsNot) {
  LinkPair pair = connected_links(GetParam());
  for (const Expects expects : {Expects::what_comes, Expects::something_else}) {
    for (const std::size_t unit : {0, 1, 4, 16}) {
      exchange(*pair.a, *pair.b, messages_of_every_size(), unit, expects);
    }
    exchange(*pair.a, *pair.b, messages_of_every_size(), 0, expects, true);
  }
}

TEST_P(Links, CarryLargeMessagesBothWaysAtOnce) {
  LinkPair pair = connected_links(GetParam());
  constexpr std::size_t kBytes = 64 << 20;
  Outgoing from_a = message(kBytes, 1), from_b = message(kBytes, 2);
  Incoming to_a(0), to_b(4);
  while (!from_a.done || !from_b.done || !to_a.done || !to_b.done) {
    ASSERT_TRUE(push(*pair.a, from_a).ok());
    ASSERT_TRUE(push(*pair.b, from_b).ok());
    ASSERT_TRUE(pull(*pair.a, to_a).ok());
    ASSERT_TRUE(pull(*pair.b, to_b).ok());
  }
  EXPECT_TRUE(to_a.payload == from_b.payload);
  EXPECT_TRUE(to_b.payload == from_a.payload);
}

TEST_P(Links, SayWhatASleeperShouldWatch) {
  LinkPair pair = connected_links(GetParam());
  pollfd entry = pair.b->poll_entry();
  EXPECT_EQ(poll(&entry, 1, 0), 0);

  // Fill the socket until nothing more fits, nor does once all is acknowledged: now the sender waits for
  // room.
  Outgoing large = message(64 << 20, 1);
  do {
    ASSERT_TRUE(push(*pair.a, large).ok());
    entry = pair.a->poll_entry();
  } while (poll(&entry, 1, 200) == 1);
  ASSERT_FALSE(large.done);
  entry = pair.b->poll_entry();
  EXPECT_EQ(poll(&entry, 1, -1), 1);

  // Whatever is to be done next, one of the two hears of it.
  Incoming in;
  while (!in.done) {
    ASSERT_TRUE(push(*pair.a, large).ok());
    ASSERT_TRUE(pull(*pair.b, in).ok());
    pollfd both[] = {pair.a->poll_entry(), pair.b->poll_entry()};
    ASSERT_TRUE(in.done || poll(both, 2, 10'000) > 0);
  }
  EXPECT_TRUE(in.payload == large.payload);
}

TEST_P(Links, NameThePeerThatIsGoneAndDeliverWhatItSaid) {
  LinkPair pair = connected_links(GetParam());
  Outgoing last = message(100'000, 1);
  while (!last.done) ASSERT_TRUE(push(*pair.a, last).ok());
  pair.a.reset();
  Incoming in;
  while (!in.done) {
    auto got = pull(*pair.b, in);
    ASSERT_TRUE(got.ok()) << got.status().message();
  }
  EXPECT_TRUE(in.payload == last.payload);
  await_something(*pair.b);
  auto head = pair.b->peek();
  ASSERT_FALSE(head.ok());
  EXPECT_EQ(head.status().code(), ErrorCode::peer_lost);
  EXPECT_EQ(head.status().culprit(), 0);
  EXPECT_NE(head.status().message().find("rank 0 at 127.0.0.1:"), std::string::npos)
      << head.status().message();
  EXPECT_FALSE(pair.b->peek().ok()) << "an error is final";
}

TEST_P(Links, EndInTheMiddleOfAMessage) {
  LinkPair pair = connected_links(GetParam());
  Outgoing large = message(64 << 20, 1);
  ASSERT_TRUE(push(*pair.a, large).ok());
  ASSERT_FALSE(large.done);
  pair.a.reset();
  Incoming in(8);
  Result<bool> got = false;
  while (got.ok()) got = pull(*pair.b, in);
  EXPECT_EQ(got.status().code(), ErrorCode::peer_lost);
  EXPECT_EQ(got.status().culprit(), 0);
}

// To where it is wanted, and not to where another one was: receives of the two may have different places.
TEST(TcpLink, WhatComesInPlaceOfWhatIsAwaitedIsReadWhole) {
  LinkPair pair = connected_links();
  Outgoing sent = message(8 << 10, 1);
  while (!sent.done) ASSERT_TRUE(push(*pair.a, sent).ok());
  std::vector<std::byte> elsewhere(sent.payload.size()), here(sent.payload.size());
  Awaited other{sent.header, elsewhere};
  ++other.header.sequence;
  const FrameHeader* header = nullptr;
  while (header == nullptr) {
    await_something(*pair.b);
    auto head = pair.b->peek(&other);
    ASSERT_TRUE(head.ok());
    header = *head;
  }
  EXPECT_EQ(header->sequence, sent.header.sequence);
  for (std::size_t got = 0; got < here.size();) {
    auto more = pair.b->read(std::span(here).subspan(got));
    ASSERT_TRUE(more.ok());
    got += *more;
  }
  EXPECT_TRUE(here == sent.payload);
}

TEST(TcpLink, WorksOverIpv6) {
  LinkPair pair = connected_links(1, "::1");
  exchange(*pair.a, *pair.b, {message(1'000'000, 1)}, 0);
  pair.a.reset();
  await_something(*pair.b);
  EXPECT_NE(pair.b->peek().status().message().find("[::1]:"), std::string::npos);
}

TEST(TcpLink, TakesAStreamThatComesByteByByte) {
  struct Way {
    std::size_t unit;
    bool awaits, room;
    std::size_t bytes;
  };
  for (const auto& [unit, awaits, room, bytes] : std::initializer_list<Way>{{0, false, false, 1500},
                                                                            {4, false, false, 1500},
                                                                            {16, false, false, 1500},
                                                                            {0, true, false, 1500},
                                                                            {0, true, true, 1500},
                                                                            {4, true, false, kPeekBytes}}) {
    SocketPair pair = connected_sockets();
    TcpLink link(std::move(pair.b), 0);
    const Outgoing first = message(bytes, 1), second = message(7, 2);
    std::vector<std::byte> stream;
    for (const Outgoing* one : {&first, &second}) {
      const auto head = std::as_bytes(std::span(&one->header, 1));
      stream.insert(stream.end(), head.begin(), head.end());
      stream.insert(stream.end(), one->payload.begin(), one->payload.end());
    }
    std::vector<std::vector<std::byte>> got;
    Incoming in(unit);
    in.room = room;
    if (awaits) in.awaited = first.header;
    for (const std::byte byte : stream) {
      ASSERT_EQ(send_some(pair.a.get(), std::span(&byte, 1)).bytes, 1u);
      pollfd entry = link.poll_entry();
      ASSERT_EQ(poll(&entry, 1, 10'000), 1);
      auto complete = pull(link, in);
      ASSERT_TRUE(complete.ok());
      if (!*complete) continue;
      got.push_back(in.payload);
      in = Incoming(unit);
      if (awaits) in.awaited = second.header;
    }
    ASSERT_EQ(got.size(), 2u);
    EXPECT_TRUE(got[0] == first.payload);
    EXPECT_TRUE(got[1] == second.payload);
  }
}

TEST(TcpLink, LinksThatShareABounceKeepTheirBytesApart) {
  const auto bounce = std::make_shared<Bounce>();
  struct End {
    SocketPair sockets = connected_sockets();
    Outgoing out;
    Incoming in{16};
  };
  std::deque<End> ends(3);
  std::deque<TcpLink> senders, receivers;
  for (End& end : ends) {
    senders.emplace_back(std::move(end.sockets.a), 1);
    receivers.emplace_back(std::move(end.sockets.b), 0, bounce);
    end.out = message(1'000'007, senders.size());
    if (senders.size() != 2) end.in.awaited = end.out.header;
  }
  // Every receive leaves bytes that are less than a unit, because the senders cut at odd places.
  const auto all_done = [&] {
    return std::all_of(ends.begin(), ends.end(), [](const End& end) { return end.in.done; });
  };
  while (!all_done()) {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      End& end = ends[i];
      const std::size_t cut =
          std::min<std::size_t>(end.out.payload.size(), end.out.cursor.payload_bytes + 9'001);
      if (!end.out.done) {
        auto sent = senders[i].send(end.out.header, std::span(end.out.payload).first(cut), end.out.cursor);
        ASSERT_TRUE(sent.ok());
        end.out.done = end.out.cursor.payload_bytes == end.out.payload.size();
      }
      ASSERT_TRUE(pull(receivers[i], end.in).ok());
    }
  }
  for (const End& end : ends) EXPECT_TRUE(end.in.payload == end.out.payload);
}

TEST(TcpLink, LendsAlignedWhatCameBehindAnOddMessage) {
  LinkPair pair = connected_links();
  Outgoing odd = message(7, 1), even = message(64, 2);
  ASSERT_TRUE(*push(*pair.a, odd) && *push(*pair.a, even));
  Incoming first, second(16);
  while (!first.done) ASSERT_TRUE(pull(*pair.b, first).ok());
  while (!second.done) ASSERT_TRUE(pull(*pair.b, second).ok());
  EXPECT_TRUE(second.payload == even.payload);
}

TEST(TcpLink, TheBounceOutlivesTheLinkThatHasIt) {
  const auto bounce = std::make_shared<Bounce>();
  const Outgoing out = message(1'000'000, 1);
  struct alignas(TcpLink) Place {
    std::byte bytes[sizeof(TcpLink)];
  };
  Place places[2];
  for (Place& place : places) {
    SocketPair sockets = connected_sockets();
    TcpLink sender(std::move(sockets.a), 1);
    TcpLink* const receiver = new (&place) TcpLink(std::move(sockets.b), 0, bounce);
    SendCursor cursor;
    Incoming in(16);
    while (in.received == 0) {
      ASSERT_TRUE(sender.send(out.header, out.payload, cursor).ok());
      ASSERT_TRUE(pull(*receiver, in).ok());
    }
    receiver->~TcpLink();
    std::memset(&place, 0xff, sizeof place);
  }
}

TEST(ReceiveBuffer, GivesBackWhatItTookForMoreThanUsual) {
  ReceiveBuffer buffer(64);
  buffer.prepend(pattern(1000, 1));
  buffer.consume(999);
  EXPECT_EQ(buffer.size(), 1u);
  buffer.consume(1);
  EXPECT_EQ(buffer.writable(1000).size(), 64u);
}

TEST(TcpLink, RefusesBytesThatAreNoFrame) {
  SocketPair pair = connected_sockets();
  TcpLink link(std::move(pair.b), 3);
  const std::vector<std::byte> garbage = pattern(200, 9);
  ASSERT_EQ(send_some(pair.a.get(), garbage).bytes, garbage.size());
  pollfd entry = link.poll_entry();
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto head = link.peek();
    ASSERT_FALSE(head.ok());
    EXPECT_EQ(head.status().code(), ErrorCode::internal);
    EXPECT_EQ(head.status().culprit(), 3);
    EXPECT_NE(head.status().message().find("sent bytes that are not a frame"), std::string::npos);
  }
}

TEST(TcpLink, AllocatesNothingForAClaimedLength) {
  SocketPair pair = connected_sockets();
  TcpLink link(std::move(pair.b), 0);
  FrameHeader header;
  header.bytes = UINT64_MAX;
  ASSERT_EQ(send_some(pair.a.get(), std::as_bytes(std::span(&header, 1))).bytes, sizeof header);
  pollfd entry = link.poll_entry();
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  auto head = link.peek();
  ASSERT_TRUE(head.ok() && *head != nullptr);
  auto lent = link.borrow(8, SIZE_MAX);
  ASSERT_TRUE(lent.ok());
  EXPECT_TRUE(lent->empty());
  pair.a.reset();
  await_something(link);
  auto end = link.borrow(8, SIZE_MAX);
  EXPECT_EQ(end.status().code(), ErrorCode::peer_lost);
}

}  // namespace
}  // namespace lockstep::internal
