// What the matcher makes of messages in any order, and of frames that no matcher sends. Links that end:
// matcher_ends_test.cpp.
#include "tests/engine/matcher_fixture.hpp"

namespace lockstep::internal {
namespace {

using testing::frame;
using testing::kLong;
using testing::Letter;
using testing::MatcherTest;
using testing::offer;

TEST_F(MatcherTest, StatusesAreTheMessagesWhetherItOrItsReceiveCameFirst) {
  arrive(offer(5, 3));
  matcher_.take_in();
  Letter stored, awaited;
  receive(stored, 10, kAnyTag);
  expect_received(stored, 5, 3);
  receive(awaited, 10, kAnyTag);
  arrive(offer(6, 4));
  matcher_.step();
  expect_received(awaited, 6, 4);
  EXPECT_EQ(awaited.operation.path, Operation::Path::links) << "its buffer was written to";
  EXPECT_TRUE(matcher_.idle());
}

TEST_F(MatcherTest, LongOnesGoToTheReceiveThatAcceptedThem) {
  Letter first, second;
  receive(first, kLong, 1);
  receive(second, kLong + 1, 2);
  arrive(offer(kLong + 1, 2, 8));
  arrive(offer(kLong, 1, 9));
  for (int step = 0; step < 2; ++step) matcher_.step();
  EXPECT_EQ(first.operation.path, Operation::Path::links);
  ASSERT_EQ(link_.sent.size(), 2u);
  EXPECT_EQ(link_.sent[0].kind, FrameKind::accept);
  ASSERT_EQ(link_.expected.size(), 2u);
  EXPECT_EQ(link_.expected[1].data(), first.memory.data());
  EXPECT_EQ(link_.expected[1].size(), kLong);
  arrive(frame(FrameKind::message, 9, kLong));  // In another order than they were accepted in.
  arrive(frame(FrameKind::message, 8, kLong + 1));
  matcher_.step();
  expect_received(first, kLong, 1);
  expect_received(second, kLong + 1, 2);
  EXPECT_TRUE(matcher_.idle());
}

TEST_F(MatcherTest, AnAnswerIsToItsOwnSend) {
  Letter first, second;
  send(first, kLong);
  send(second, kLong + 1);
  FrameHeader no = frame(FrameKind::accept, 0);
  no.index = 1;
  no.facts.count = 3;
  arrive(frame(FrameKind::accept, 4711));  // To none.
  arrive(frame(FrameKind::accept, 1));
  arrive(no);
  matcher_.step();
  EXPECT_EQ(code_of(first), ErrorCode::refused);
  matcher_.step();
  ASSERT_TRUE(second.end && second.end->ok());
  ASSERT_EQ(link_.sent.size(), 3u);
  EXPECT_EQ(link_.sent[2].kind, FrameKind::message);
  EXPECT_EQ(link_.sent[2].sequence, 1u);
  EXPECT_EQ(link_.sent[2].bytes, kLong + 1);
  EXPECT_TRUE(matcher_.idle());
}

// Where the first is under way and only not over.
TEST_F(MatcherTest, TheNextIsBegunWhereTheLinkSaysSo) {
  for (const bool begins : {false, true}) {
    link_.sent.clear();
    link_.begins = begins;
    link_.ends_sends = false;
    Letter first, second;
    send(first, 10);
    send(second, 11);
    matcher_.step();
    EXPECT_EQ(link_.sent.size(), begins ? 2u : 1u);
    link_.ends_sends = true;
    matcher_.step();
    EXPECT_TRUE(first.end && second.end);
    EXPECT_TRUE(matcher_.idle());
  }
}

TEST_F(MatcherTest, NoneIsBegunBeforeTheOneInFront) {
  link_.room = 10;
  link_.begins = true;
  Letter long_one, short_one;
  send(long_one, 11);
  send(short_one, 10);
  matcher_.step();
  EXPECT_TRUE(link_.sent.empty());
  link_.room = 11;
  matcher_.step();
  EXPECT_EQ(link_.sent.size(), 2u);
}

TEST_F(MatcherTest, AnotherTypeIsAMismatchThatLeavesTheBufferAlone) {
  for (const std::size_t count : {std::size_t{10}, kLong}) {
    for (const bool early : {false, true}) {
      FrameHeader other = offer(count);
      other.facts.type = DataType::i8;
      if (early) arrive(other);
      matcher_.take_in();
      Letter letter;
      receive(letter, count);
      if (!early) arrive(other);
      matcher_.step();
      EXPECT_EQ(code_of(letter), ErrorCode::mismatch);
      EXPECT_EQ(letter.memory[0], std::byte{1});
      EXPECT_EQ(letter.operation.path, Operation::Path::none);
    }
  }
}

// ---- links that end ----

class FullStore : public MatcherTest {
 protected:
  FullStore() {
    for (std::size_t i = 0; i <= kMaxUnexpected; ++i) arrive(offer(1, 1));
    matcher_.take_in();
    EXPECT_EQ(link_.heads.size(), 1u);
  }
};

TEST_F(FullStore, EndsNoReceiveOfARankThatSentNothing) {
  Letter other;
  receive(other, 10, 0, 2);
  matcher_.step();
  matcher_.take_in();
  EXPECT_FALSE(other.end);
}

TEST_F(FullStore, RefusesWhatItWouldHaveToLookBehind) {
  Letter refused;
  receive(refused, 1, 2);
  matcher_.step();
  EXPECT_EQ(code_of(refused), ErrorCode::refused);
  arrive(offer(1, 2));  // Nobody waits for it any more.
  Letter fitting[2];
  for (Letter& letter : fitting) {
    receive(letter, 1, 1);
    expect_received(letter, 1, 1);
    matcher_.take_in();
  }
  EXPECT_TRUE(link_.heads.empty());
}

// ---- what no matcher sends ----

TEST_F(MatcherTest, OffersThatContradictThemselvesAreDropped) {
  FrameHeader strange[5];
  strange[0] = offer(10), strange[0].index = 2;
  strange[1] = offer(10), strange[1].bytes = 20;
  strange[2] = offer(kLong), strange[2].index = 1, strange[2].bytes = kLong;
  strange[3] = offer(kLong), strange[3].bytes = 10;
  strange[4] = offer(10), strange[4].facts.type = static_cast<DataType>(99);
  for (const FrameHeader& one : strange) {
    for (const bool early : {false, true}) {
      if (early) arrive(one);
      matcher_.take_in();
      Letter letter;
      receive(letter, 2 * kLong);
      if (!early) arrive(one);
      arrive(offer(5));
      matcher_.step();
      expect_received(letter, 5);
    }
  }
}

TEST_F(MatcherTest, APayloadOfAnotherSizeThanAcceptedIsDropped) {
  Letter letter;
  receive(letter, kLong);
  arrive(offer(kLong));
  matcher_.step();
  arrive(frame(FrameKind::message, 0, kLong + 1000));
  arrive(frame(FrameKind::message, 0, kLong - 1));
  matcher_.step();
  EXPECT_FALSE(letter.end);
  EXPECT_EQ(letter.memory[0], std::byte{1});
  arrive(frame(FrameKind::message, 0, kLong));
  matcher_.step();
  expect_received(letter, kLong);
}

}  // namespace
}  // namespace lockstep::internal
