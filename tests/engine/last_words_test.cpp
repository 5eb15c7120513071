// What a peer that has gone said last, wherever it lies: that is the cause, and not that it is gone. And how
// long a call or a message waits for it.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/engine/failing_engine.hpp"

namespace lockstep::internal {
namespace {

using testing::barrier;
using testing::expect_enough;
using testing::FailingEngine;
using testing::frame;
using testing::say_enough;
using testing::ScriptedLink;

class LastWords : public FailingEngine {};

TEST_F(LastWords, TakesWhatAPeerSaidForTheCauseOfItsLoss) {
  for (const Channel channel : {Channel::collective, Channel::urgent}) {
    make(2);
    say_enough(link(1, channel));
    engine_->on_loss(1, "its process ended");
    expect_enough(engine_->reason());
  }
}

TEST_F(LastWords, FindsTheReasonOnAnyLinkWhereOneHasEnded) {
  make(2);
  link(1).ended = true;
  say_enough(link(1, Channel::urgent));
  Operation& waiting = start(barrier());
  pass(0);
  expect_enough(error_of(waiting));
}

TEST_F(LastWords, FindsTheReasonOnALinkThatNobodyHasAskedForYet) {
  make(2);
  link(1, Channel::urgent).ended = true;
  say_enough(link(1));
  transport_->unasked.insert({1, Channel::collective});
  Call urgent = barrier();
  urgent.priority = 1;
  expect_enough(error_of(start(urgent)));
}

/// Of a call, the rest of which is here when the link is looked at once more.
class HalfTaken : public FailingEngine {
 protected:
  /// Rank 0's call takes some of what rank `from` has sent for it.
  void take_half(int from, Channel channel) {
    Call call;
    call.facts.collective = Collective::broadcast;
    call.facts.type = DataType::u8;
    call.facts.count = call.output_elements = taken_.size();
    call.facts.root = from;
    call.output = taken_.data();
    call.priority = channel == Channel::urgent ? 1 : 0;
    FrameHeader half = frame(FrameKind::data, 0, taken_.size());
    half.facts = call.facts;
    link(from, channel).heads.push_front(half);
    link(from, channel).come = taken_.size() / 3;
    start(call);
    EXPECT_EQ(link(from, channel).come, 0u);
  }
  /// Behind a message that nobody took anything of.
  void say_enough_behind(ScriptedLink& link, std::size_t bytes) {
    link.heads.push_back(frame(FrameKind::data, 3, bytes));
    say_enough(link);
    link.text = std::string(bytes, 'x') + link.text;
  }
  Status lose() {
    engine_->on_loss(1, "its process ended");
    return engine_->reason();
  }

  std::vector<std::byte> taken_ = std::vector<std::byte>(99);
};

TEST_F(HalfTaken, IsDroppedToItsEndForTheReasonBehindIt) {
  make(2);
  ScriptedLink& half = link(1);
  say_enough_behind(half, 50);
  half.text = std::string(taken_.size(), 'x') + half.text;
  take_half(1, Channel::collective);
  half.in_next_peek = [&half] { half.come = 1'000; };
  expect_enough(lose());
}

TEST_F(HalfTaken, IsNotOfAnotherLink) {
  for (const auto& [from, channel] : {std::pair(1, Channel::urgent), std::pair(2, Channel::collective)}) {
    make(3);
    say_enough_behind(link(1), 100);
    take_half(from, channel);
    expect_enough(lose());
    engine_->release(operations_.back());
    operations_.pop_back();
  }
}

// Whatever the peer sent meanwhile.
TEST_F(LastWords, FindsTheReasonBehindWhatAPeerHasGoneOnTo) {
  make(2);
  Operation& waiting = start(barrier());
  pass(0);
  link(1).heads = {frame(FrameKind::data, 1, 100), frame(FrameKind::data, 2, 100)};
  say_enough(link(1));
  link(1).text = std::string(200, 'x') + link(1).text;
  pass(0);
  expect_enough(error_of(waiting));
}

class Lost : public FailingEngine {
 protected:
  /// A barrier that has yet to hear from rank 1, whose link has ended, while rank 2 is lost.
  Operation& start_without_end() {
    make(3);
    link(1);
    link(2).heads.push_back(frame(FrameKind::data));
    return start(barrier());
  }
  void lose() { engine_->on_loss(2, "its process ended"); }
  /// As the session's thread does while the call looks at the link: it finds the engine's lock taken.
  Status error_of_call_meanwhile(Operation& call) {
    link(1).ended = true;
    link(1).in_next_peek = [this] { std::thread([this] { lose(); }).join(); };
    pass(0);
    return error_of(call);
  }
};

TEST_F(Lost, MadeTheOtherPeerLeave) {
  Operation& waiting = start_without_end();
  link(1).ended = true;
  lose();
  EXPECT_EQ(error_of(waiting).culprit(), 2) << error_of(waiting).message();
}

TEST_F(Lost, MadeTheOtherPeerLeaveThatIsFoundToHaveLeftMeanwhile) {
  const Status error = error_of_call_meanwhile(start_without_end());
  EXPECT_EQ(error.culprit(), 2) << error.message();
}

// It says it once.
TEST_F(Lost, IsNamedByTheOtherPeersLastWordsToo) {
  Operation& waiting = start_without_end();
  link(1).heads.push_back(frame(FrameKind::revoke, 0, 10));
  link(1).text = "3 2 no way";
  const Status error = error_of_call_meanwhile(waiting);
  EXPECT_EQ(error.culprit(), 2) << error.message();
  EXPECT_NE(error.message().find("no way"), std::string::npos) << error.message();
}

class EndedCall : public FailingEngine {
 protected:
  /// Whose link has ended, while another one is being made.
  Operation& call(Nanos timeout = 0) {
    make(2);
    link(1).ended = true;
    transport_->under_way.insert({1, Channel::urgent});
    Operation& waiting = start(barrier(timeout));
    pass(0);
    return waiting;
  }
  void expect_waits(const Operation& waiting, Nanos wait) {
    pass(wait);
    EXPECT_FALSE(waiting.done);
    EXPECT_EQ(engine_->state(), ErrorCode::ok);
  }
};

TEST_F(EndedCall, IsToldWhyOnALinkThatIsBeingMade) {
  Operation& waiting = call();
  expect_waits(waiting, kExplanationWait / 2);
  ScriptedLink& made = link(1, Channel::urgent);  // Whose word comes a little later.
  expect_waits(waiting, kExplanationWait / 2);
  say_enough(made);
  pass(0);
  expect_enough(error_of(waiting));
}

TEST_F(EndedCall, WaitsAWhileToBeTold) {
  Operation& waiting = call();
  expect_waits(waiting, kExplanationWait);
  pass(1);
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::peer_lost);
}

TEST_F(EndedCall, DoesNotWaitForItsDeadline) {
  constexpr Nanos kSoon = kExplanationWait / 2;
  Operation& waiting = call(kSoon);
  expect_waits(waiting, kSoon - kProbeAfter);
  pass(1);
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::peer_lost);
}

// Where sending has failed: what there is to read is looked through at once.
TEST_F(EndedCall, DoesNotWaitWhereTheWordMayLieBehindData) {
  make(2);
  link(1).sends = false;
  link(1).heads = {frame(FrameKind::data, 1, 100)};
  transport_->under_way.insert({1, Channel::urgent});
  Operation& waiting = start(barrier());
  pass(0);
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::peer_lost);
}

TEST_F(EndedCall, DoesNotWaitForWhatTheSessionKnows) {
  Operation& waiting = call();
  engine_->on_loss(1, "its process ended");
  pass(0);
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::peer_lost);
}

class EndedMessage : public FailingEngine {
 protected:
  /// `lives`: the link for collectives.
  Operation& receive(Nanos timeout, int peer = 1, bool lives = true) {
    make(2);
    link(1).ended = !lives;
    link(1, Channel::point_to_point).ended = true;
    Message message;
    message.peer = peer;
    message.timeout = timeout;
    return start(message);
  }
  /// Behind `wait`, and alone.
  void expect_end(Operation& message, Nanos wait) {
    pass(0);
    pass(wait);
    EXPECT_FALSE(message.done);
    pass(1);
    EXPECT_EQ(error_of(message).code(), ErrorCode::peer_lost);
    EXPECT_EQ(engine_->state(), ErrorCode::ok);
    engine_->release(operations_.back());
    operations_.pop_back();
  }
};

TEST_F(EndedMessage, IsToldWhyOnAnotherLinkAndEndsTheCommunicator) {
  make(2);
  say_enough(link(1));
  link(1, Channel::point_to_point).ended = true;
  Message message;
  message.peer = 1;
  expect_enough(error_of(start(message)));
  expect_enough(engine_->reason());
}

// As the end of the one link and the word on the other come, each when it does.
TEST_F(EndedMessage, IsToldWhyOnALinkThatIsBeingMade) {
  make(2);
  transport_->under_way.insert({1, Channel::collective});
  link(1, Channel::point_to_point).ended = true;
  Message message;
  message.peer = 1;
  Operation& waiting = start(message);
  pass(kExplanationWait);
  EXPECT_FALSE(waiting.done);
  say_enough(link(1));
  pass(0);
  expect_enough(error_of(waiting));
}

TEST_F(EndedMessage, WaitsAWhileToBeToldAndHarmsNothingElse) {
  for (const int peer : {1, kAnySource}) expect_end(receive(0, peer), kExplanationWait);
}

// Which would end the communicator.
TEST_F(EndedMessage, DoesNotWaitForItsDeadline) {
  constexpr Nanos kSoon = kExplanationWait / 2;
  for (const int peer : {1, kAnySource}) expect_end(receive(kSoon, peer), kSoon - kProbeAfter);
}

TEST_F(EndedMessage, IsOverAtOnceWhereThePeerCanSayNothingMore) {
  Operation& message = receive(0, 1, false);
  EXPECT_EQ(error_of(message).code(), ErrorCode::peer_lost);
}

}  // namespace
}  // namespace lockstep::internal
