// What an engine makes of frames that nobody should send, whom it tells of a revoke, and when it asks and
// gives up.
#include "tests/engine/failing_engine.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace lockstep::internal {
namespace {

using testing::barrier;
using testing::expect_enough;
using testing::FailingEngine;
using testing::frame;
using testing::kMilli;
using testing::say_enough;
using testing::ScriptedLink;

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
  EXPECT_FALSE(transport_->wanted.contains({2, Channel::urgent}))
      << "nothing lies in front of the first word";
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

// Who asks cannot carry it out itself while another thread makes progress.
TEST_F(FailingEngine, KnowsTheReasonOnceSomebodyHasAskedForItsEnd) {
  make(2);
  link(1).in_next_peek = [&] {
    std::thread([&] { engine_->request_revoke(Status(ErrorCode::aborted, "enough")); }).join();
  };
  EXPECT_EQ(engine_->poll_state(), ErrorCode::ok) << "it was asked behind its look at that";
  expect_enough(engine_->reason());
}

// Peers read no word in the midst of a message.
TEST_F(FailingEngine, FinishesWhatItHadBegunToSendAndThenTells) {
  make(2);
  link(1).ends_sends = false;
  std::byte sent[99] = {};
  Call call;
  call.facts.collective = Collective::broadcast;
  call.facts.type = DataType::u8;
  call.facts.count = call.input_elements = call.output_elements = sizeof sent;
  call.input = call.output = sent;
  const Operation& begun = start(call);
  EXPECT_EQ(count_sent(1, FrameKind::data), 1u);
  engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
  expect_enough(error_of(begun));
  pass(0);
  EXPECT_EQ(count_sent(1, FrameKind::revoke), 0u);
  link(1).ends_sends = true;
  pass(0);
  EXPECT_EQ(count_sent(1, FrameKind::revoke), 1u);
}

// The thread that finds a failure, or aborts, may be one that others wait for.
TEST_F(FailingEngine, LooksAgainLaterWhoHoldsTheMemoryOfItsCalls) {
  make(2);
  link(1);
  transport_->held = 1'000;
  const Operation& waiting = start(barrier());
  engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
  EXPECT_EQ(engine_->state(), ErrorCode::aborted);
  EXPECT_FALSE(waiting.done.load()) << "its memory is not the caller's again";
  EXPECT_EQ(error_of(start(barrier())).code(), ErrorCode::aborted);
  env_.time += kQuiesceWait - 1;
  engine_->step();
  EXPECT_FALSE(waiting.done.load());
  EXPECT_TRUE(transport_->forced.empty());
  env_.time += 1;
  engine_->step();
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::aborted);
  EXPECT_EQ(transport_->forced, std::set<int>{1});
}

TEST_F(FailingEngine, EndsOnlyWhenNobodyHoldsTheMemoryOfItsCalls) {
  make(2);
  link(1);
  transport_->held = 3;
  const Operation& waiting = start(barrier());
  engine_->close();
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::aborted);
  EXPECT_TRUE(transport_->forced.empty()) << "it let go";
}

// Behind what it sent before its word may never be read: the one on the urgent link is sure.
TEST_F(FailingEngine, HasToldWhomItReachedOnTheUrgentLink) {
  enum class Way { taken, stuck, never_set_up };
  const auto lay = [&](Channel channel, Way way) {
    if (way == Way::never_set_up) return;
    ScriptedLink& laid = link(1, channel);
    if (way == Way::taken) return;
    laid.ends_sends = false;
    laid.room = 0;
    laid.reaches = false;
  };
  for (const auto& [collective, urgent, untold] :
       {std::tuple(Way::taken, Way::taken, false), std::tuple(Way::taken, Way::never_set_up, true),
        std::tuple(Way::taken, Way::stuck, true), std::tuple(Way::stuck, Way::taken, false),
        std::tuple(Way::never_set_up, Way::taken, false), std::tuple(Way::stuck, Way::stuck, true)}) {
    make(2);
    lay(Channel::collective, collective);
    lay(Channel::urgent, urgent);
    engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
    engine_->close();
    EXPECT_EQ(engine_->left_untold(), untold)
        << static_cast<int>(collective) << " and " << static_cast<int>(urgent);
  }
}

// ---- what callers are told ----

bool says(const Operation& failed, const char* words) {
  return failed.status.message().find(words) != std::string::npos;
}

TEST_F(FailingEngine, SaysWhatHasBecomeOfTheBuffers) {
  make(2);
  link(1);
  const Operation& started = start(barrier());
  for (std::size_t i = 1; i < kMaxInFlight; ++i) start(barrier());
  const Operation& queued = start(barrier());
  engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
  EXPECT_TRUE(says(started, "the output is undefined")) << started.status.message();
  EXPECT_TRUE(says(queued, "the buffers are unchanged")) << queued.status.message();
}

TEST_F(FailingEngine, SaysWhetherItHasEndedWithTheCall) {
  Call refused = barrier();
  refused.refusal = Status(ErrorCode::invalid_argument, "no");
  for (const int ranks : {1, 2}) {
    make(ranks);
    const Operation& call = start(refused);
    EXPECT_TRUE(says(call, "correct the arguments of that call")) << call.status.message();
    EXPECT_EQ(says(call, "this communicator has ended"), ranks == 2) << call.status.message();
    EXPECT_EQ(engine_->state() != ErrorCode::ok, ranks == 2);
    engine_->release(operations_.back());
    operations_.pop_back();
  }
}

TEST_F(FailingEngine, GoesOnAfterAMessageThatIsTooLong) {
  make(2);
  FrameHeader offer = frame(FrameKind::offer);
  offer.index = 1;
  offer.facts.count = offer.bytes = 10;
  link(1, Channel::point_to_point).heads.push_back(offer);
  Message message;
  message.peer = 1;
  const Operation& received = start(message);
  EXPECT_EQ(error_of(received).code(), ErrorCode::invalid_argument);
  EXPECT_FALSE(says(received, "this communicator has ended")) << received.status.message();
  EXPECT_EQ(engine_->state(), ErrorCode::ok);
}

// ---- what peers tell ----

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
