// What an engine makes of frames that nobody should send, whom it tells of a revoke, and when it asks and
// gives up: over links that a test moves by hand, and in its time.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "tests/engine/scripted_links.hpp"

namespace lockstep::internal {
namespace {

using testing::frame;
using testing::ScriptedLink;
using testing::ScriptedTransport;

constexpr Nanos kMilli = 1'000'000;

class StandingEnv final : public Env {
 public:
  Nanos now() noexcept override { return time; }
  std::uint64_t random() noexcept override { return 7; }
  void wake_at(Nanos) noexcept override {}
  Nanos time = 1'000 * kMilli;
};

EngineGroup group_of(int size) {
  EngineGroup group;
  group.id = 1;
  for (int rank = 0; rank < size; ++rank) {
    Member member;
    member.rank = rank;
    member.host_id = member.host_name = "scripted";
    member.pid = 1000 + rank;
    member.process = process_token();
    group.members.push_back(std::move(member));
  }
  return group;
}

Call barrier(Nanos timeout = 0) {
  Call call;
  call.timeout = timeout;
  return call;
}

/// Rank 0's.
class FailingEngine : public ::testing::Test {
 protected:
  void make(int size) {
    auto transport = std::make_unique<ScriptedTransport>();
    transport_ = transport.get();
    engine_ = std::make_shared<Engine>(group_of(size), std::move(transport), env_, nullptr);
  }
  ~FailingEngine() override {
    for (Operation* operation : operations_) engine_->release(operation);
  }
  ScriptedLink& link(int peer, Channel channel = Channel::collective) {
    return transport_->at(peer, channel);
  }
  template <typename Called>
  Operation& start(const Called& call) {
    operations_.push_back(engine_->start(call));
    return *operations_.back();
  }
  /// The error with which `operation` has ended.
  static Status error_of(const Operation& operation) {
    EXPECT_TRUE(operation.done.load());
    return operation.done.load() ? operation.status : Status();
  }
  void pass(Nanos time) {
    env_.time += time;
    for (int round = 0; round < 2; ++round) {  // What one has found to say leaves in the next.
      while (engine_->step()) {
      }
    }
  }
  std::size_t count_sent(int peer, FrameKind kind, Channel channel = Channel::collective) {
    const auto& sent = link(peer, channel).sent;
    return static_cast<std::size_t>(
        std::count_if(sent.begin(), sent.end(), [&](const FrameHeader& one) { return one.kind == kind; }));
  }

  StandingEnv env_;
  ScriptedTransport* transport_ = nullptr;
  std::shared_ptr<Engine> engine_;
  std::vector<Operation*> operations_;
};

// ---- who is told ----

TEST_F(FailingEngine, InASmallGroupTellsAllButTheLost) {
  make(16);
  engine_->on_loss(3, "it is no more");
  for (int peer = 1; peer < 16; ++peer)
    EXPECT_EQ(transport_->wanted.contains({peer, Channel::collective}), peer != 3) << peer;
  EXPECT_EQ(transport_->forced, std::set<int>{3}) << "what a living peer sends is over in a moment";
}

TEST_F(FailingEngine, InALargeGroupTellsWhomItIsLinkedToAndAFewMore) {
  make(17);
  ScriptedLink &near = link(1), &far = link(3), &urgent = link(5, Channel::urgent);
  engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
  engine_->request_revoke(Status(ErrorCode::internal, "a later reason"));
  EXPECT_EQ(engine_->reason().message(), "enough");
  for (const ScriptedLink* told : {&near, &far, &urgent}) {
    ASSERT_EQ(told->sent.size(), 1u);
    EXPECT_EQ(told->sent.front().kind, FrameKind::revoke);
  }
  for (int peer = 1; peer < 17; ++peer) {
    if (peer == 1 || peer == 3) continue;
    const bool power_away = peer == 2 || peer == 4 || peer == 8 || 17 - peer == 1 || 17 - peer == 2 ||
                            17 - peer == 4 || 17 - peer == 8;
    EXPECT_EQ(transport_->wanted.contains({peer, Channel::collective}), power_away) << peer;
  }
  EXPECT_TRUE(transport_->wanted.contains({1, Channel::urgent})) << "it may wait there";
  EXPECT_FALSE(transport_->wanted.contains({3, Channel::urgent}));
}

TEST_F(FailingEngine, GoesOnTellingForAWhileAndNotForEver) {
  make(2);
  link(1).ends_sends = false;
  link(1).room = 0;
  link(1).reaches = false;
  engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
  pass(kDrainTime);
  EXPECT_FALSE(engine_->left_untold()) << "it may still be told";
  pass(1);
  EXPECT_TRUE(engine_->left_untold());
}

// Behind what it sent before its word may never be read: the other link would have been sure.
TEST_F(FailingEngine, HasNotToldWhomItReachedOnOneLinkOnly) {
  for (const bool both : {true, false}) {
    make(2);
    link(1);
    if (both) link(1, Channel::urgent);
    engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
    EXPECT_EQ(link(1).sent.size(), 1u);
    engine_->close();
    EXPECT_EQ(engine_->left_untold(), !both);
  }
}

// ---- what peers tell ----

/// On a link of rank 1 or another.
void say_enough(ScriptedLink& link) {
  link.heads.push_back(frame(FrameKind::revoke, 0, 10));
  link.text = "5 1 enough";
}
void expect_enough(const Status& status) {
  EXPECT_EQ(status.code(), ErrorCode::aborted) << status.message();
  EXPECT_NE(status.message().find("enough"), std::string::npos) << status.message();
}

TEST_F(FailingEngine, HearsAReasonAndWhoIsToBlame) {
  make(3);
  Operation& waiting = start(barrier());
  link(1);
  link(2).heads.push_back(frame(FrameKind::revoke, 0, 12));
  link(2).text = "5 1 no more!";
  pass(0);
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::aborted);
  EXPECT_EQ(error_of(waiting).culprit(), 1);
  EXPECT_NE(error_of(waiting).message().find("cause : no more!"), std::string::npos)
      << error_of(waiting).message();
}

TEST_F(FailingEngine, NamesAPeerWhoseFramesMakeNoSense) {
  for (const auto& [strange, words] :
       {std::pair(frame(FrameKind::revoke, 0, kMaxReasonBytes + 1), "sent an oversized reason"),
        std::pair(frame(FrameKind::offer), "sent a frame of kind 4 on a link for collectives"),
        std::pair(frame(static_cast<FrameKind>(99)), "sent a frame of kind 99 on a link for collectives")}) {
    make(2);
    Operation& waiting = start(barrier());
    link(1).heads.push_back(strange);
    pass(0);
    EXPECT_EQ(error_of(waiting).code(), ErrorCode::internal);
    EXPECT_EQ(error_of(waiting).culprit(), 1);
    EXPECT_NE(error_of(waiting).message().find(words), std::string::npos) << error_of(waiting).message();
    engine_->release(operations_.back());
    operations_.pop_back();
  }
}

TEST_F(FailingEngine, AFrameThatACallDidNotTakeIsADifference) {
  make(2);
  link(1).heads.push_back(frame(FrameKind::data, 0));
  Operation& first = start(barrier());
  pass(0);
  EXPECT_TRUE(first.done && first.status.ok());
  link(1).heads.push_back(frame(FrameKind::data, 0));  // Of the same call, which is over.
  Operation& second = start(barrier());
  pass(0);
  EXPECT_EQ(error_of(second).code(), ErrorCode::mismatch);
  EXPECT_NE(error_of(second).message().find("operation #0 differs"), std::string::npos)
      << error_of(second).message();
}

TEST_F(FailingEngine, WhatAPeerAskedBeforeIsComparedWithTheCall) {
  make(3);
  FrameHeader asked = frame(FrameKind::probe, 1);
  asked.facts.collective = Collective::all_reduce;
  asked.facts.count = 5;
  link(1).heads = {asked, frame(FrameKind::data, 0)};
  link(2).heads.push_back(frame(FrameKind::data, 0));
  Operation& first = start(barrier());
  pass(0);
  EXPECT_TRUE(first.done && first.status.ok());
  Operation& second = start(barrier());
  EXPECT_EQ(error_of(second).code(), ErrorCode::mismatch);
  EXPECT_NE(error_of(second).message().find("rank 1 (scripted, pid 1001) called all_reduce(u8 x 5"),
            std::string::npos)
      << error_of(second).message();
  EXPECT_NE(error_of(second).message().find("called barrier"), std::string::npos);
}

// ---- last words ----

TEST_F(FailingEngine, TakesWhatAPeerSaidForTheCauseOfItsLoss) {
  for (const Channel channel : {Channel::collective, Channel::urgent}) {
    make(2);
    say_enough(link(1, channel));
    engine_->on_loss(1, "its process ended");
    expect_enough(engine_->reason());
  }
}

TEST_F(FailingEngine, FindsTheReasonOnAnyLinkWhereOneHasEnded) {
  make(2);
  link(1).ended = true;
  say_enough(link(1, Channel::urgent));
  Operation& waiting = start(barrier());
  pass(0);
  expect_enough(error_of(waiting));
}

TEST_F(FailingEngine, FindsTheReasonBehindAMessageThatIsHalfTaken) {
  make(2);
  link(1).heads.push_back(frame(FrameKind::data, 3, 100));
  say_enough(link(1));
  link(1).text = std::string(100, 'x') + link(1).text;
  engine_->on_loss(1, "its process ended");
  expect_enough(engine_->reason());
}

// Whatever the peer sent meanwhile.
TEST_F(FailingEngine, FindsTheReasonBehindWhatAPeerHasGoneOnTo) {
  make(2);
  Operation& waiting = start(barrier());
  pass(0);
  link(1).heads = {frame(FrameKind::data, 1, 100), frame(FrameKind::data, 2, 100)};
  say_enough(link(1));
  link(1).text = std::string(200, 'x') + link(1).text;
  pass(0);
  expect_enough(error_of(waiting));
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

TEST_F(EndedMessage, WaitsAWhileToBeToldAndHarmsNothingElse) {
  for (const int peer : {1, kAnySource}) {
    Operation& message = receive(0, peer);
    pass(0);
    pass(kExplanationWait);
    EXPECT_FALSE(message.done);
    pass(1);
    EXPECT_EQ(error_of(message).code(), ErrorCode::peer_lost);
    EXPECT_EQ(engine_->state(), ErrorCode::ok);
    engine_->release(operations_.back());
    operations_.pop_back();
  }
}

// Which would end the communicator.
TEST_F(EndedMessage, DoesNotWaitForItsDeadline) {
  for (const int peer : {1, kAnySource}) {
    Operation& message = receive(kExplanationWait / 2, peer);
    pass(0);
    pass(kExplanationWait / 2 - kProbeAfter);
    EXPECT_FALSE(message.done);
    pass(1);
    EXPECT_EQ(error_of(message).code(), ErrorCode::peer_lost);
    EXPECT_EQ(engine_->state(), ErrorCode::ok);
    engine_->release(operations_.back());
    operations_.pop_back();
  }
}

TEST_F(EndedMessage, IsOverAtOnceWhereThePeerCanSayNothingMore) {
  Operation& message = receive(0, 1, false);
  EXPECT_EQ(error_of(message).code(), ErrorCode::peer_lost);
}

// ---- what nobody waits for ----

TEST_F(FailingEngine, TakesInSmallMessagesWhileItWaitsForSomethingElse) {
  make(2);
  link(1);
  start(barrier());
  FrameHeader offer = frame(FrameKind::offer, 0, 4);
  offer.index = 1;
  offer.facts.count = 4;
  link(1, Channel::point_to_point).heads.push_back(offer);
  pass(0);
  EXPECT_TRUE(link(1, Channel::point_to_point).heads.empty());
}

TEST_F(FailingEngine, ListensToAllWhileItWaitsForAMessage) {
  make(3);
  link(1, Channel::point_to_point);
  Message message;
  message.peer = 1;
  Operation& waiting = start(message);
  pass(0);
  say_enough(link(2));
  pass(kListenEvery - 1);
  EXPECT_FALSE(waiting.done) << "not at every look";
  pass(1);
  expect_enough(error_of(waiting));
}

// ---- time ----

TEST_F(FailingEngine, AsksWhomItWaitsForAfterAWhileAndNowAndThen) {
  make(2);
  link(1);
  start(barrier());
  pass(0);
  pass(kProbeAfter - 1);
  EXPECT_EQ(count_sent(1, FrameKind::probe), 0u);
  pass(1);
  EXPECT_EQ(count_sent(1, FrameKind::probe), 1u);
  pass(kProbeEvery - 1);
  EXPECT_EQ(count_sent(1, FrameKind::probe), 1u);
  pass(1);
  EXPECT_EQ(count_sent(1, FrameKind::probe), 2u);
}

TEST_F(FailingEngine, WaitsAMomentForAReasonWhereAPeerHasGoneOn) {
  make(2);
  Operation& waiting = start(barrier());
  pass(0);
  link(1).heads.push_back(frame(FrameKind::data, 1));  // Of its next call.
  pass(0);
  pass(kExplanationWait);
  EXPECT_FALSE(waiting.done);
  pass(1);
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::mismatch);
  EXPECT_NE(error_of(waiting).message().find("has gone on to later operations"), std::string::npos)
      << error_of(waiting).message();
}

// Of a call, of one that waits for its turn, and of a message.
TEST_F(FailingEngine, DeadlinesPassToTheMoment) {
  Message message;
  message.timeout = 20 * kMilli;
  message.peer = 1;
  const std::vector<std::function<Operation&()>> starts{
      [&]() -> Operation& { return start(barrier(20 * kMilli)); },
      [&]() -> Operation& {
        for (std::size_t i = 0; i < kMaxInFlight; ++i) start(barrier());
        return start(barrier(20 * kMilli));
      },
      [&]() -> Operation& { return start(message); }};
  for (const auto& begin : starts) {
    make(2);
    link(1), link(1, Channel::point_to_point);
    Operation& late = begin();
    pass(0);
    pass(20 * kMilli - 1);
    EXPECT_FALSE(late.done);
    pass(1);
    EXPECT_EQ(error_of(late).code(), ErrorCode::timeout);
    EXPECT_NE(error_of(late).message().find("the deadline of 20 ms"), std::string::npos)
        << error_of(late).message();
    for (Operation* operation : operations_) engine_->release(operation);
    operations_.clear();
  }
}

}  // namespace
}  // namespace lockstep::internal
