// What the matcher makes of messages in any order, of links that end, and of frames that no matcher sends.
#include "collectives/engine/matcher.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "tests/engine/scripted_links.hpp"

namespace lockstep::internal {
namespace {

using testing::frame;
using testing::ScriptedLink;
using testing::ScriptedTransport;

/// A message of bytes, and what becomes of it.
struct Letter {
  Operation operation;
  std::vector<std::byte> memory;
  std::optional<Status> end;
};

FrameHeader offer(std::size_t count, int tag = 0, std::uint64_t number = 0) {
  FrameHeader header = frame(FrameKind::offer, number, count <= kEagerBytes ? count : 0);
  header.index = count <= kEagerBytes ? 1 : 0;
  header.tag = tag;
  header.facts.count = count;
  return header;
}
constexpr std::size_t kLong = kEagerBytes + 1;

class MatcherTest : public ::testing::Test, public Matcher::Sink {
 protected:
  void complete(Operation& operation, Status status) override {
    Letter& letter = *letters_.at(&operation);
    EXPECT_FALSE(letter.end) << "ended twice";
    letter.end = std::move(status);
  }
  std::optional<Status> cause_of_loss(int, const Status& why) override { return why; }

  void post(Letter& letter, bool is_send, std::size_t count, int tag = 0, int peer = 1) {
    letter.memory.assign(count, std::byte{1});
    letters_[&letter.operation] = &letter;
    Message& message = letter.operation.message;
    message.is_send = is_send;
    message.buffer = letter.memory.data();
    message.count = count;
    message.type = DataType::u8;
    message.peer = peer;
    message.tag = tag;
    matcher_.post(letter.operation);
  }
  void send(Letter& letter, std::size_t count) { post(letter, true, count); }
  void receive(Letter& letter, std::size_t count, int tag = 0, int peer = 1) {
    post(letter, false, count, tag, peer);
  }
  void arrive(const FrameHeader& header) { link_.heads.push_back(header); }
  static ErrorCode code_of(const Letter& letter) { return letter.end ? letter.end->code() : ErrorCode::ok; }
  static void expect_received(const Letter& letter, std::size_t count, int tag = 0) {
    ASSERT_TRUE(letter.end && letter.end->ok()) << (letter.end ? letter.end->message() : "has not ended");
    EXPECT_EQ(letter.operation.received.source, 1);
    EXPECT_EQ(letter.operation.received.tag, tag);
    EXPECT_EQ(letter.operation.received.count, count);
    EXPECT_EQ(letter.memory[count - 1], std::byte{7});
  }

  ScriptedTransport transport_;
  ScriptedLink& link_ = transport_.at(1, Channel::point_to_point);
  ScriptedLink& other_link_ = transport_.at(2, Channel::point_to_point);
  Matcher matcher_{&transport_, *this, 3, 0, false};
  std::map<const Operation*, Letter*> letters_;
};

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
