// What an engine does while calls wait: whom it asks, listens to and names, what it holds for urgent ones;
// and that a call has nothing of one before.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/engine/algorithm_cases.hpp"
#include "tests/engine/failing_engine.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::barrier;
using testing::expect_enough;
using testing::FailingEngine;
using testing::frame;
using testing::kMilli;
using testing::must;
using testing::say_enough;

Call urgent_barrier() {
  Call call = barrier();
  call.priority = 1;
  return call;
}

class WaitingEngine : public FailingEngine {
 protected:
  /// Of bytes, along the chain of ranks.
  Call broadcast(int root) {
    Call call;
    call.facts.collective = Collective::broadcast;
    call.facts.algorithm = static_cast<std::uint8_t>(
        number_of(*must(find_algorithm(Collective::broadcast, Medium::links, "chain"))));
    call.facts.type = DataType::u8;
    call.facts.count = call.output_elements = memory_.size();
    call.facts.root = root;
    call.output = memory_.data();
    return call;
  }
  void arrive(const Call& call, std::uint64_t sequence, Channel channel = Channel::collective) {
    FrameHeader data = frame(FrameKind::data, sequence, call.facts.count);
    data.facts = call.facts;
    link(1, channel).heads.push_back(data);
  }

  /// Of four ranks, in which this one waits for the root.
  Call broadcast_of_3(Nanos timeout = 0) {
    Call call = broadcast(3);
    call.timeout = timeout;
    return call;
  }
  FrameHeader of_broadcast(FrameKind kind, int tag = 0) {
    FrameHeader header = frame(kind);
    header.facts = broadcast(3).facts;
    header.tag = tag;
    return header;
  }
  /// The root is asked in the call that has just begun, and tells whom it waits for.
  void answer(int for_rank) {
    link(3);
    pass(0);
    pass(kProbeAfter);
    link(3).heads.push_back(of_broadcast(FrameKind::waits, for_rank));
    pass(0);
  }

  std::array<std::byte, 99> memory_{};
};

// ---- whom it asks and listens to ----

TEST_F(WaitingEngine, AsksOnUrgentLinksToo) {
  make(2);
  link(1), link(1, Channel::urgent);
  start(urgent_barrier());
  pass(0);
  pass(kProbeAfter);
  EXPECT_EQ(count_sent(1, FrameKind::probe, Channel::urgent), 1u);
  EXPECT_EQ(count_sent(1, FrameKind::probe), 0u);
}

TEST_F(WaitingEngine, AsksOnceWhereItsQuestionCannotLeave) {
  make(2);
  link(1).ends_sends = false;
  start(broadcast(1));
  for (int i = 0; i < 3; ++i) pass(kProbeEvery);
  link(1).ends_sends = true;
  pass(0);
  EXPECT_EQ(count_sent(1, FrameKind::probe), 1u);
}

// Its bytes would lie between those of the message.
TEST_F(WaitingEngine, AsksWhenTheMessageThatItHasBegunIsOut) {
  make(2);
  link(1).ends_sends = false;
  start(barrier());
  pass(0);
  EXPECT_EQ(count_sent(1, FrameKind::data), 1u);
  pass(kProbeAfter);
  EXPECT_EQ(count_sent(1, FrameKind::probe), 0u);
  link(1).ends_sends = true;
  pass(0);
  EXPECT_EQ(count_sent(1, FrameKind::probe), 1u);
}

TEST_F(WaitingEngine, HearsAReasonOnTheOtherLink) {
  make(2);
  link(1);
  Operation& waiting = start(barrier());
  pass(0);
  say_enough(link(1, Channel::urgent));
  pass(kProbeAfter);
  expect_enough(error_of(waiting));
}

TEST_F(WaitingEngine, HearsAReasonThoughAllItsMessagesEndAtOnce) {
  make(3);
  link(1, Channel::point_to_point);
  say_enough(link(2));
  Message message;
  message.is_send = true;
  message.peer = 1;
  for (unsigned i = 0; i < kMovesPerLook; ++i) {
    env_.time += kListenEvery;
    start(message);
  }
  EXPECT_EQ(engine_->state(), ErrorCode::aborted);
}

// As many later ones as it remembers.
TEST_F(WaitingEngine, ComparesACallThatManyWaitBehind) {
  make(2);
  link(1);
  Operation& first = start(barrier());
  for (std::size_t i = 0; i < kRecentCalls; ++i) start(barrier());
  FrameHeader asked = frame(FrameKind::probe);
  asked.facts.collective = Collective::all_gather;
  link(1).heads.push_back(asked);
  pass(0);
  EXPECT_EQ(error_of(first).code(), ErrorCode::mismatch);
  EXPECT_NE(error_of(first).message().find("called barrier"), std::string::npos) << error_of(first).message();
}

// ---- whom it names ----

TEST_F(WaitingEngine, NamesWhomItWaitsForAndNotWhoWaitsForIt) {
  make(3);
  link(1), link(2);
  Call call = broadcast(2);
  call.timeout = kMilli;
  const Operation& late = start(call);
  pass(0);
  pass(kMilli);
  const std::string said = error_of(late).message();
  EXPECT_NE(said.find("it waits for rank 2"), std::string::npos) << said;
  EXPECT_EQ(said.find("rank 1"), std::string::npos) << said;
}

// Which says so when it is asked, and is not itself to blame.
TEST_F(WaitingEngine, NamesWhomThatOneWaitsFor) {
  make(4);
  const Operation& late = start(broadcast_of_3(kProbeAfter + kMilli));
  answer(2);
  pass(kMilli);
  const std::string said = error_of(late).message();
  EXPECT_NE(said.find("it waits for rank 3 (scripted, pid 1003), which waits for rank 2 ("),
            std::string::npos)
      << said;
}

TEST_F(WaitingEngine, NamesWhomItWaitsForWhereThatIsAllThatIsKnown) {
  for (const int told : {0, 3, 4, -1}) {  // It waits for this rank or itself, or for nobody that there is.
    make(4);
    const Operation& late = start(broadcast_of_3(kProbeAfter + kMilli));
    answer(told);
    pass(kMilli);
    const std::string said = error_of(late).message();
    EXPECT_EQ(said.find("which waits for"), std::string::npos) << told << ": " << said;
  }
}

TEST_F(WaitingEngine, WhatIsAskedInVainMayWaitNoMore) {
  make(4);
  const Operation& late = start(broadcast_of_3(3 * kProbeEvery));
  answer(2);
  pass(3 * kProbeEvery);
  const std::string said = error_of(late).message();
  EXPECT_NE(said.find("it waits for rank 3 ("), std::string::npos) << said;
  EXPECT_EQ(said.find("which waits for"), std::string::npos) << said;
}

TEST_F(WaitingEngine, TellsWhoAsksWhomItWaitsForItself) {
  make(4);
  link(1), link(3);
  start(broadcast_of_3());
  pass(0);
  link(1).heads.push_back(of_broadcast(FrameKind::probe));
  pass(kProbeAfter);
  ASSERT_EQ(count_sent(1, FrameKind::waits), 1u);
  EXPECT_EQ(link(1).sent.back().tag, 3);
  link(3).heads.push_back(of_broadcast(FrameKind::waits, 2));
  pass(0);
  link(1).heads.push_back(of_broadcast(FrameKind::probe));
  pass(kProbeEvery);
  ASSERT_EQ(count_sent(1, FrameKind::waits), 2u);
  EXPECT_EQ(link(1).sent.back().tag, 2);
}

// Whose question may lie behind what it has sent.
TEST_F(WaitingEngine, TellsWhoIsAheadWhomItWaitsFor) {
  make(4);
  link(1), link(2), link(3);
  start(broadcast_of_3());
  pass(0);
  link(1).heads = {of_broadcast(FrameKind::data), of_broadcast(FrameKind::probe)};
  link(1).heads.front().sequence = 1;
  pass(kProbeAfter);
  EXPECT_EQ(count_sent(1, FrameKind::waits), 1u);
  EXPECT_EQ(count_sent(2, FrameKind::waits), 0u) << "it has sent nothing";
  pass(kProbeEvery - 1);
  EXPECT_EQ(count_sent(1, FrameKind::waits), 1u);
  pass(1);
  EXPECT_EQ(count_sent(1, FrameKind::waits), 2u);
}

TEST_F(WaitingEngine, DoesNotTellAPeerThatItWaitsForIt) {
  make(4);
  link(3);
  start(broadcast_of_3());
  pass(0);
  link(3).heads.push_back(of_broadcast(FrameKind::probe));
  pass(kProbeAfter);
  EXPECT_EQ(count_sent(3, FrameKind::waits), 0u);
}

TEST_F(WaitingEngine, TheFirstErrorOfABatchIsItsOwn) {
  make(2);
  std::vector<Message> messages(2);
  for (Message& message : messages) {
    message.peer = 1;
    message.type = DataType::i8;
  }
  FrameHeader offer = frame(FrameKind::offer);
  offer.index = 1;
  link(1, Channel::point_to_point).heads.push_back(offer);
  link(1, Channel::point_to_point).ended = true;
  operations_.push_back(engine_->start_batch({}, {}, messages));
  EXPECT_EQ(error_of(*operations_.back()).code(), ErrorCode::mismatch);
}

// ---- what it holds ----

TEST_F(WaitingEngine, HoldsOthersWhileAnUrgentCallMovesAndForAMoment) {
  make(2);
  link(1);
  const Call call = broadcast(1);
  Call urgent = call;
  urgent.priority = 1;
  link(1, Channel::urgent).come = 0;
  arrive(urgent, 1, Channel::urgent);
  const Operation& other = start(call);
  const Operation& first = start(urgent);
  link(1, Channel::urgent).come = 10;
  arrive(call, 0);
  engine_->step();
  EXPECT_FALSE(other.done);
  EXPECT_EQ(env_.wake, env_.time + kUrgentPause);
  env_.time += kUrgentPause - 1;
  engine_->step();
  EXPECT_FALSE(other.done);
  env_.time += 1;
  engine_->step();
  EXPECT_TRUE(other.done && other.status.ok());
  EXPECT_FALSE(first.done);
}

// ---- one call after another ----

TEST_F(WaitingEngine, AQueuedCallHasCountsOfItsOwn) {
  make(2);
  link(1);
  for (std::size_t i = 0; i < kMaxInFlight; ++i) {
    start(barrier());
    link(1).heads.push_back(frame(FrameKind::data, i));
  }
  Call call;
  call.facts.collective = Collective::all_to_all_v;
  call.facts.type = DataType::u8;
  std::vector<std::size_t> counts{1, 2}, recv_counts{1, 3};
  call.input_elements = 3;
  call.output_elements = 4;
  call.input = memory_.data();
  call.output = memory_.data() + 50;
  call.counts = counts;
  call.recv_counts = recv_counts;
  const Operation& queued = start(call);
  counts = recv_counts = {20, 20};  // The caller uses the lists for something else.
  FrameHeader theirs = frame(FrameKind::data, kMaxInFlight, 3);
  theirs.facts = call.facts;
  link(1).heads.push_back(theirs);
  pass(0);
  EXPECT_TRUE(queued.done && queued.status.ok()) << queued.status.message();
  EXPECT_EQ(link(1).sent.back().bytes, 2u);
}

TEST_F(WaitingEngine, ACallHasNotTheDeadlineOfOneBefore) {
  make(2);
  link(1);
  const Operation& before = start(barrier(20 * kMilli));
  pass(0);
  link(1).heads.push_back(frame(FrameKind::data, 0));
  pass(0);
  EXPECT_TRUE(before.done && before.status.ok());
  engine_->release(operations_.back());
  operations_.pop_back();
  const Operation& next = start(barrier());
  EXPECT_EQ(&next, &before) << "it is not the same operation again";
  pass(0);
  pass(20 * kMilli);
  EXPECT_FALSE(next.done);
}

}  // namespace
}  // namespace lockstep::internal
