// What becomes of messages whose links end, or which are abandoned.
#include "tests/engine/matcher_fixture.hpp"

namespace lockstep::internal {
namespace {

using testing::frame;
using testing::kLong;
using testing::Letter;
using testing::MatcherTest;
using testing::offer;

// A link's errors are final for their direction.
TEST_F(MatcherTest, WhatCameBeforeASendFailedIsReceived) {
  Letter here, later, sent;
  receive(here, 10);
  receive(later, 10);
  send(sent, 10);
  link_.sends = false;
  arrive(offer(10));
  matcher_.step();
  expect_received(here, 10);
  EXPECT_EQ(code_of(sent), ErrorCode::peer_lost);
  EXPECT_EQ(code_of(later), ErrorCode::peer_lost);
}

TEST_F(MatcherTest, WhateverNeedsALinkEndsWithIt) {
  Letter offered, accepted, posted, other;
  send(offered, kLong);
  receive(accepted, kLong, 1);
  receive(posted, 10, 2);
  receive(other, 10, 2, 2);
  arrive(offer(kLong, 1));
  matcher_.step();
  link_.ended = true;
  matcher_.step();
  for (const Letter* letter : {&offered, &accepted, &posted})
    EXPECT_EQ(code_of(*letter), ErrorCode::peer_lost);
  EXPECT_FALSE(other.end) << "of another rank";
  other_link_.heads.push_back(offer(10, 2));
  matcher_.step();
  EXPECT_TRUE(other.end && other.end->ok());
  EXPECT_TRUE(matcher_.idle());
}

TEST_F(MatcherTest, WhatWaitsToBeSentEndsWithItsLink) {
  link_.room = 0;
  Letter waiting;
  send(waiting, 10);
  link_.ended = true;
  matcher_.step();
  EXPECT_EQ(code_of(waiting), ErrorCode::peer_lost);
  EXPECT_TRUE(matcher_.idle());
}

TEST_F(MatcherTest, NobodyIsLeftWhereNobodyCanBeReached) {
  Letter any;
  transport_.reaches = false;
  receive(any, 10, 0, kAnySource);
  matcher_.step();
  EXPECT_EQ(code_of(any), ErrorCode::peer_lost);
}

TEST_F(MatcherTest, WhoLeftLastIsNamedWhereNobodyIsLeft) {
  other_link_.ending = Status(ErrorCode::peer_lost, "it left later", 2);
  link_.ended = true;
  for (const int peer : {1, 2, 1}) {
    Letter letter;
    receive(letter, 10, 0, peer);
    matcher_.step();
    EXPECT_EQ(code_of(letter), peer == 1 ? ErrorCode::peer_lost : ErrorCode::ok);
    if (peer == 1) continue;
    other_link_.ended = true;
    matcher_.step();
    EXPECT_EQ(code_of(letter), ErrorCode::peer_lost);
  }
  Letter any;
  receive(any, 10, 0, kAnySource);
  matcher_.step();
  ASSERT_EQ(code_of(any), ErrorCode::peer_lost);
  EXPECT_EQ(any.end->culprit(), 2) << any.end->message();
}

TEST_F(MatcherTest, AHalfReceivedOneEndsWithItsLink) {
  Letter half;
  receive(half, 10);
  link_.here = false;
  arrive(offer(10));
  matcher_.step();
  EXPECT_FALSE(half.end);
  link_.ended = true;
  matcher_.step();
  EXPECT_EQ(code_of(half), ErrorCode::peer_lost);
  EXPECT_TRUE(matcher_.idle());
}

TEST_F(MatcherTest, WhatHasEndedIsNotEndedOnceMore) {
  Letter come, later;
  receive(come, kLong);
  arrive(offer(kLong));
  matcher_.step();
  arrive(frame(FrameKind::message, 0, kLong));
  matcher_.step();
  expect_received(come, kLong);
  receive(later, 10);
  link_.ended = true;
  matcher_.step();
  EXPECT_EQ(code_of(later), ErrorCode::peer_lost);
}

// A link that sends nothing more may still be read.
TEST_F(MatcherTest, AHalfStoredOneIsForgottenWhereASendFails) {
  arrive(offer(10, 1));
  link_.come = 4;
  matcher_.take_in();
  Letter sent, half, next;
  link_.sends = false;
  send(sent, 10);
  matcher_.step();
  EXPECT_EQ(code_of(sent), ErrorCode::peer_lost);
  link_.come = 100;
  arrive(offer(5, 2));
  receive(half, 10, 1);
  receive(next, 10, 2);
  matcher_.step();
  EXPECT_FALSE(half.end);
  expect_received(next, 5, 2);
  for (std::size_t i = 0; i < kMaxUnexpected; ++i) {  // It takes no room.
    Letter own;
    post(own, true, 1, 3, 0);
    EXPECT_EQ(code_of(own), ErrorCode::ok) << i;
  }
}

TEST_F(MatcherTest, WhatIsAbandonedIsTouchedNoMore) {
  Letter accepted, half, offered, queued;
  receive(accepted, kLong, 1);
  receive(half, 10, 2);
  send(offered, kLong);
  arrive(offer(kLong, 1));
  arrive(offer(10, 2));
  link_.come = 4;
  matcher_.step();
  matcher_.step();
  link_.room = 0;
  send(queued, 10);
  matcher_.abandon();
  EXPECT_TRUE(matcher_.idle());
  EXPECT_FALSE(matcher_.owes());
  link_.come = 2 * kLong;
  arrive(frame(FrameKind::message, 0, kLong));
  arrive(frame(FrameKind::accept, 0));
  matcher_.take_in();
  EXPECT_TRUE(link_.heads.empty());
  for (const Letter* letter : {&accepted, &half, &offered, &queued}) EXPECT_FALSE(letter->end);
  EXPECT_EQ(accepted.memory[0], std::byte{1});
  EXPECT_EQ(half.memory[3], std::byte{7});
  EXPECT_EQ(half.memory[4], std::byte{1});
}

TEST_F(MatcherTest, WhatIsStoredWholeIsThereAfterItsLinkHasEndedAndNoHalf) {
  arrive(offer(10, 1));
  matcher_.take_in();
  link_.here = false;
  arrive(offer(10, 2));
  matcher_.take_in();
  link_.ended = true;
  Letter half, whole;
  receive(half, 10, 2);
  matcher_.step();
  EXPECT_EQ(code_of(half), ErrorCode::peer_lost);
  receive(whole, 10, 1);
  expect_received(whole, 10, 1);
}

// ---- the store ----

}  // namespace
}  // namespace lockstep::internal
