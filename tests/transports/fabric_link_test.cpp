// Links over a fabric, of which there is one in memory: no device and no library is needed.
#include <poll.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/support/scarce_memory.hpp"
#include "tests/transports/link_fixtures.hpp"
#include "tests/transports/memory_fabric.hpp"

namespace lockstep::internal {
namespace {

using testing::FabricPair;
using testing::Incoming;
using testing::message;
using testing::Outgoing;
using testing::pull;
using testing::push;

void exchange(Link& from, Link& to, std::size_t bytes, std::size_t borrow_unit) {
  Outgoing out = message(bytes, bytes + 1);
  Incoming in(borrow_unit);
  for (int steps = 0; !out.done || !in.done; ++steps) {
    ASSERT_LT(steps, 100'000) << "nothing moves";
    auto sent = push(from, out);
    ASSERT_TRUE(sent.ok()) << sent.status().message();
    auto got = pull(to, in);
    ASSERT_TRUE(got.ok()) << got.status().message();
  }
  EXPECT_TRUE(in.payload == out.payload) << bytes;
}

TEST(FabricLink, CarriesMessagesOfEverySize) {
  for (const bool direct : {false, true}) {
    FabricPair pair(direct);
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{1}, kSlotBytes, kPiecewiseBytes, kPiecewiseBytes + 1,
          kBounceLandingBytes + 16, 2 * kDirectLandingBytes + 32}) {
      exchange(*pair.a, *pair.b, bytes, 0);
      exchange(*pair.b, *pair.a, bytes, 16);
    }
  }
}

TEST(FabricLink, AReceiverThatDoesNotReadHoldsTheSenderBack) {
  FabricPair pair;
  std::size_t accepted = 0;
  Outgoing next = message(100, accepted);
  while (*push(*pair.a, next)) next = message(100, ++accepted);
  EXPECT_EQ(accepted, kPieceCredits);
  for (std::size_t number = 0; number < 10 * kPieceCredits; ++number) {
    Incoming in;
    ASSERT_TRUE(*pull(*pair.b, in));
    EXPECT_EQ(in.header.sequence, number);
    if (*push(*pair.a, next)) next = message(100, ++accepted);
  }
}

TEST(FabricLink, CreditsThatCouldNotBeToldAreToldLater) {
  FabricPair pair;
  std::uint64_t number = 0;
  for (int round = 0; round < 3; ++round) {
    pair.wire_b->takes = false;
    for (std::size_t i = 0; i < kPieceCredits; ++i) {
      Outgoing out = message(100, number++);
      ASSERT_TRUE(*push(*pair.a, out)) << number;
      Incoming in;
      ASSERT_TRUE(*pull(*pair.b, in));
    }
    pair.wire_b->takes = true;
    pair.b->pump();
  }
}

// ---- several messages under way ----

constexpr std::size_t kLarge = kPiecewiseBytes + 1;

Outgoing point_to_point(std::size_t bytes, std::uint64_t seed) {
  Outgoing out = message(bytes, seed);
  out.header.kind = FrameKind::message;
  return out;
}

TEST(FabricLink, ASmallMessageThatIsNotWholeLetsNoOtherBegin) {
  FabricPair pair;
  for (std::size_t i = 0; i < kPieceCredits - 2; ++i) {
    Outgoing small = message(100, i);
    ASSERT_TRUE(*push(*pair.a, small));
  }
  Outgoing of_many_pieces = message(kPiecewiseBytes, 99);
  EXPECT_FALSE(*push(*pair.a, of_many_pieces));
  EXPECT_GT(of_many_pieces.cursor.payload_bytes, 0u);
  EXPECT_FALSE(pair.a->may_begin());
}

TEST(FabricLink, MessagesUnderWayFillTheirOwnPlacesAndEndInTheirOrder) {
  FabricPair pair;
  std::vector<std::byte> places[2]{std::vector<std::byte>(kLarge), std::vector<std::byte>(kLarge)};
  Outgoing first = point_to_point(kLarge, 1), second = point_to_point(kLarge, 2);
  pair.wire_a->tells = false;
  pair.b->expect(places[0]);
  EXPECT_FALSE(*push(*pair.a, first));
  EXPECT_TRUE(pair.a->may_begin());
  EXPECT_FALSE(*push(*pair.a, second));
  EXPECT_FALSE(pair.a->may_begin()) << "the second has no place yet";
  pair.b->expect(places[1]);
  EXPECT_FALSE(*push(*pair.a, first));
  EXPECT_FALSE(*push(*pair.a, second));
  pair.wire_a->tells = true;
  EXPECT_FALSE(*push(*pair.a, second)) << "the first is not over";
  EXPECT_TRUE(*push(*pair.a, first));
  EXPECT_TRUE(*push(*pair.a, second));
  EXPECT_TRUE(places[0] == first.payload);
  EXPECT_TRUE(places[1] == second.payload);
}

TEST(FabricLink, AsManyMessagesAreUnderWayAsPlacesMayBeOpen) {
  FabricPair pair;
  std::vector<std::vector<std::byte>> places(kLandings, std::vector<std::byte>(kLarge));
  std::vector<Outgoing> out;
  pair.wire_a->tells = false;
  for (auto& place : places) pair.b->expect(place);
  for (std::size_t i = 0; i < kLandings; ++i) {
    EXPECT_TRUE(pair.a->may_begin()) << i;
    EXPECT_FALSE(*push(*pair.a, out.emplace_back(point_to_point(kLarge, i))));
  }
  EXPECT_FALSE(pair.a->may_begin());
}

TEST(FabricLink, AnExpectedPlaceOpensBehindThatOfTheMessageThatIsHere) {
  FabricPair pair;
  std::vector<std::byte> places[2]{std::vector<std::byte>(kLarge), std::vector<std::byte>(kLarge)};
  Outgoing first = point_to_point(kLarge, 1), second = point_to_point(kLarge, 2);
  EXPECT_FALSE(*push(*pair.a, first));
  ASSERT_NE(pair.b->peek().value(), nullptr);
  pair.b->expect(places[1]);
  ASSERT_TRUE(pair.b->read(places[0]).ok());
  EXPECT_TRUE(*push(*pair.a, first));
  EXPECT_EQ(pair.b->read(places[0]).value(), kLarge);
  pair.b->pop();
  EXPECT_TRUE(*push(*pair.a, second));
  EXPECT_TRUE(places[0] == first.payload);
  EXPECT_TRUE(places[1] == second.payload);
}

TEST(FabricLink, AnExpectedPlaceOpensOnceAnotherIsFull) {
  FabricPair pair;
  std::vector<std::vector<std::byte>> places(kLandings + 1, std::vector<std::byte>(kLarge));
  std::vector<Outgoing> out;
  for (auto& place : places) pair.b->expect(place);
  for (std::size_t i = 0; i <= kLandings; ++i) {
    EXPECT_EQ(*push(*pair.a, out.emplace_back(point_to_point(kLarge, i))), i < kLandings) << i;
  }
  ASSERT_NE(pair.b->peek().value(), nullptr);
  EXPECT_EQ(pair.b->read(places[0]).value(), kLarge);
  EXPECT_TRUE(*push(*pair.a, out.back())) << "nobody reads it yet";
  EXPECT_TRUE(places.back() == out.back().payload);
}

TEST(FabricLink, AMessageThatIsReadToAnotherPlaceThanItWasExpectedAtIsAnError) {
  FabricPair pair;
  std::vector<std::byte> places[2]{std::vector<std::byte>(kLarge), std::vector<std::byte>(kLarge)};
  for (auto& place : places) pair.b->expect(place);
  Outgoing out = point_to_point(kLarge, 1);
  ASSERT_TRUE(*push(*pair.a, out));
  ASSERT_NE(pair.b->peek().value(), nullptr);
  for (int attempt = 0; attempt < 2; ++attempt)
    EXPECT_EQ(pair.b->read(places[1]).status().code(), ErrorCode::internal);
}

// ---- giving up ----

TEST(FabricLink, APlaceThatWasGivenUpBeforeItCouldBeToldIsNeverTold) {
  FabricPair pair;
  std::vector<std::byte> place(kLarge);
  pair.wire_b->takes = false;
  pair.b->expect(place);
  EXPECT_TRUE(pair.b->withdraw(false));
  pair.wire_b->takes = true;
  pair.b->pump();
  EXPECT_FALSE(pair.wire_a->next().has_value());
}

TEST(FabricLink, WhatWasExpectedAndNeverCameIsTakenBack) {
  FabricPair pair;
  std::vector<std::byte> place(1 << 20);
  pair.b->expect(place);
  EXPECT_TRUE(pair.b->withdraw(false));
  Outgoing late = message(place.size(), 1);
  late.header.kind = FrameKind::message;
  ASSERT_TRUE(push(*pair.a, late).ok());
  EXPECT_TRUE(std::all_of(place.begin(), place.end(), [](std::byte byte) { return byte == std::byte{}; }));
  Incoming in;
  EXPECT_EQ(pull(*pair.b, in).status().code(), ErrorCode::aborted) << "the link has ended";
}

/// A message whose receiver's memory is being filled, and never is.
class UnderWay {
 public:
  UnderWay() {
    pair_.wire_a->fills = false;
    for (int step = 0; step < 4; ++step) {
      EXPECT_FALSE(*push(*pair_.a, out_));
      EXPECT_FALSE(*pull(*pair_.b, in_));
    }
  }
  std::array<FabricLink*, 2> ends() const { return {pair_.a.get(), pair_.b.get()}; }
  void expect_cut() {
    EXPECT_EQ(push(*pair_.a, out_).status().code(), ErrorCode::peer_lost);
    EXPECT_EQ(pull(*pair_.b, in_).status().code(), ErrorCode::peer_lost);
  }

 private:
  FabricPair pair_;
  Outgoing out_ = message(1 << 20, 1);
  Incoming in_;
};

TEST(FabricLink, MemoryThatIsBeingFilledIsGivenBackByForceAlone) {
  UnderWay under_way;
  for (FabricLink* end : under_way.ends()) {
    EXPECT_FALSE(end->withdraw(false));
    EXPECT_TRUE(end->withdraw(true));
  }
  under_way.expect_cut();
}

// As a revoked call does, whose buffer is its caller's again: what is left is dropped piece by piece.
TEST(FabricLink, WhatIsLeftOfAMessageThatWasGivenUpIsReadElsewhere) {
  FabricPair pair;
  constexpr std::size_t kOpen = kLandings * kDirectLandingBytes, kLeft = 100'000;
  Outgoing out;
  out.payload.resize(kOpen + kLeft);
  out.header.bytes = out.payload.size();
  std::vector<std::byte> first(out.payload.size());
  ASSERT_TRUE(push(*pair.a, out).ok());
  ASSERT_NE(*pair.b->peek(), nullptr);
  ASSERT_EQ(*pair.b->read(first), 0u);
  ASSERT_TRUE(push(*pair.a, out).ok());
  EXPECT_TRUE(pair.b->withdraw(false));
  std::array<std::byte, 1000> elsewhere;
  std::size_t got = 0;
  for (int steps = 0; got < kLeft && steps < 1000; ++steps) {
    auto more = pair.b->read(elsewhere);
    ASSERT_TRUE(more.ok()) << more.status().message();
    got += *more;
    ASSERT_TRUE(push(*pair.a, out).ok());
  }
  EXPECT_EQ(got, kLeft);
  pair.b->pop();
  exchange(*pair.a, *pair.b, 100, 0);
}

// Whom it concerns may have looked before.
TEST(FabricDriver, WhatMovesWhenItIsArmedRingsTheBell) {
  FabricPair pair;
  std::vector<pollfd> entries;
  pair.driver->append_poll_entries(entries);
  ASSERT_EQ(entries.size(), 2u);
  const auto rings = [&] { return poll(&entries[1], 1, 0) == 1; };
  pair.driver->arm();
  pair.driver->progress();
  EXPECT_FALSE(rings());
  pair.fabric->moves = true;
  pair.driver->progress();
  EXPECT_TRUE(rings());
  pair.driver->arm();
  EXPECT_FALSE(rings());
}

// A link by which the peer has said nothing has nothing more to come, either.
TEST(FabricDriver, AFarewellEndsAllLinksOfAPeerWhereThereIsOneOrder) {
  for (const bool order : {false, true}) {
    FabricPair pair;
    pair.fabric->keeps_order = order;
    FabricLink other(*pair.driver, std::make_unique<testing::MemoryWire>(), 1, PayloadMemory::host);
    FabricLink anothers(*pair.driver, std::make_unique<testing::MemoryWire>(), 2, PayloadMemory::host);
    pair.b->say_farewell();
    EXPECT_EQ(pair.a->peek().status().code(), ErrorCode::peer_lost);
    EXPECT_EQ(other.peek().status().code(), order ? ErrorCode::peer_lost : ErrorCode::ok);
    EXPECT_TRUE(anothers.peek().ok());
  }
}

TEST(FabricLink, ABrokenWireEndsWhoReadsAndWhoBorrows) {
  for (const std::size_t borrow_unit : {0, 16}) {
    FabricPair pair;
    pair.wire_a->fills = false;
    Outgoing out = message(kLarge, 1);
    Incoming in(borrow_unit);
    EXPECT_FALSE(*push(*pair.a, out));
    EXPECT_FALSE(*pull(*pair.b, in));
    pair.wire_b->cut(Status(ErrorCode::peer_lost, "it broke", 0));
    EXPECT_EQ(pull(*pair.b, in).status().message(), "it broke");
  }
}

/// As where a revoke finds no memory for the words of what it ends.
TEST(FabricLink, MemoryIsGivenBackByForceWhereNoneIsLeft) {
  UnderWay under_way;
  for (FabricLink* end : under_way.ends()) {
    const lockstep::testing::ScarceMemory none(1);
    EXPECT_TRUE(end->withdraw(true));
  }
  under_way.expect_cut();
}

}  // namespace
}  // namespace lockstep::internal
