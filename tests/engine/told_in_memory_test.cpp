// What ranks that share memory tell each other there of failures, leaving, and calls that differ: rank 0,
// whose peer's part of the memory is written by the test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>

#include "tests/engine/scripted_domain.hpp"

namespace lockstep::internal {
namespace {

using testing::barrier;
using testing::DomainEngine;
using testing::expect_enough;

class ToldInMemory : public DomainEngine {
 protected:
  void revoke_with_enough() {
    std::strcpy(mine_.reason, "5 1 enough");
    mine_.revoked.store(2);
  }
  Operation& receive() {
    Message message;
    message.peer = 1;
    return start(message);
  }
};

// ---- revokes ----

TEST_F(ToldInMemory, IsAReasonToWhoWaits) {
  Operation& waiting = start(barrier());
  revoke_with_enough();
  pass(0);
  expect_enough(error_of(waiting));
}

// Peers write it, and one that has gone wrong leaves anything there.
TEST_F(ToldInMemory, AReasonWithoutAnEndIsAsLongAsItsPlace) {
  Operation& waiting = start(barrier());
  auto* const bytes = reinterpret_cast<char*>(&mine_);
  std::fill(bytes + offsetof(MemberControl, reason), bytes + sizeof mine_, 'x');
  std::memcpy(mine_.reason, "5 1 ", 4);
  mine_.revoked.store(2);
  pass(0);
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::aborted);
  EXPECT_EQ(engine_->reason().message().size(), kMaxReasonBytes - 4);
}

TEST_F(ToldInMemory, IsAReasonToTheCaller) {
  engine_->request_revoke(Status(ErrorCode::aborted, "enough", 0));
  EXPECT_EQ(theirs_.revoked.load(), 2u);
  EXPECT_STREQ(theirs_.reason, "5 0 enough");
  EXPECT_EQ(domain_->rung, std::set<int>{1}) << "it may sleep";
}

TEST_F(ToldInMemory, TheFirstReasonStays) {
  theirs_.revoked.store(2);
  std::strcpy(theirs_.reason, "3 1 first");
  engine_->request_revoke(Status(ErrorCode::aborted, "enough", 0));
  EXPECT_STREQ(theirs_.reason, "3 1 first");
}

// By who only asks for the state, too.
TEST_F(ToldInMemory, WhatThePeerDidBeforeItRevokedEndsWell) {
  Operation &call = start(barrier()), &message = receive();
  answer(barrier().facts, 0);
  FrameHeader offer = testing::frame(FrameKind::offer);
  offer.index = 1;
  link(1, Channel::point_to_point).heads.push_back(offer);
  revoke_with_enough();
  EXPECT_EQ(engine_->poll_state(), ErrorCode::aborted);
  for (const Operation* one : {&call, &message})
    EXPECT_TRUE(one->done && one->status.ok()) << one->status.message();
}

TEST_F(ToldInMemory, IsWhyAPeerHasGone) {
  revoke_with_enough();
  engine_->on_loss(1, "its process ended");
  expect_enough(engine_->reason());
}

// Whoever revokes tells one rank after the other, and may lose its processor in between.
TEST_F(ToldInMemory, IsWhyAPeerHasGoneThatWasToldBefore) {
  std::strcpy(theirs_.reason, "5 1 enough");
  theirs_.revoked.store(2);
  engine_->on_loss(1, "its process ended");
  expect_enough(engine_->reason());
}

TEST_F(ToldInMemory, IsWhyTheLinkOfAMessageHasEnded) {
  link(1, Channel::point_to_point).ended = true;
  revoke_with_enough();
  expect_enough(error_of(receive()));
}

TEST_F(ToldInMemory, IsWhyACallEndsWhoseRankLeaves) {
  const Operation& waiting = start(barrier());
  revoke_with_enough();
  engine_->close();
  expect_enough(error_of(waiting));
}

TEST_F(ToldInMemory, WhoIsStoppedBeforeItHasSaidWhyIsWaitedForAWhile) {
  const Operation& waiting = start(barrier());
  mine_.revoked.store(1);
  engine_->step();
  env_.time += kExplanationWait;
  engine_->step();
  EXPECT_FALSE(waiting.done);
  env_.time += 1;
  engine_->step();
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::aborted);
  EXPECT_NE(error_of(waiting).message().find("stopped before it said why"), std::string::npos)
      << error_of(waiting).message();
}

// ---- leaving ----

TEST_F(ToldInMemory, HowManyCallsALeaverHasMade) {
  Operation& first = start(barrier());
  answer(barrier().facts, 0);
  pass(0);
  EXPECT_TRUE(first.done && first.status.ok());
  theirs_.doorbell.asleep.store(1);
  engine_->close();
  EXPECT_EQ(mine_.left.load(), 2u);
  EXPECT_EQ(domain_->rung, std::set<int>{1});
}

TEST_F(ToldInMemory, ThatAPeerHasLeftBeforeACallAndNotAfterIt) {
  const Operation& waiting = start(barrier());
  theirs_.left.store(2);
  pass(0);
  pass(kProbeAfter);
  EXPECT_FALSE(waiting.done) << "it has made the call";
  theirs_.left.store(1);
  pass(kProbeAfter);
  EXPECT_EQ(error_of(waiting).code(), ErrorCode::peer_lost);
  EXPECT_EQ(error_of(waiting).culprit(), 1);
}

// ---- differences ----

// Also where the call ended at once.
TEST_F(ToldInMemory, WhatACallIs) {
  for (const std::uint64_t sequence : {0, 1}) {
    answer(barrier().facts, sequence);
    EXPECT_TRUE(engine_->run(barrier()).ok());
    EXPECT_TRUE(mine_.recent[sequence].read(sequence)) << sequence;
  }
}

class DiffersInMemory : public ToldInMemory {
 protected:
  Operation& start_another_call() {
    theirs_.inline_line[0].fingerprint = 1;
    theirs_.inline_line[0].flag.store(1);
    return start(barrier());
  }
};

TEST_F(DiffersInMemory, WhoDoesNotRecordItsCallIsWaitedForAWhile) {
  Operation& mine = start_another_call();
  engine_->step();
  env_.time += kRecordWait - 1;
  engine_->step();
  EXPECT_FALSE(mine.done);
  env_.time += 1;
  engine_->step();
  EXPECT_EQ(error_of(mine).code(), ErrorCode::mismatch);
}

TEST_F(DiffersInMemory, WhoHasGoneOnIsNotWaitedFor) {
  theirs_.recent[0].write(kRecentCalls, {});
  Operation& mine = start_another_call();
  engine_->step();
  EXPECT_EQ(error_of(mine).code(), ErrorCode::mismatch);
}

TEST_F(DiffersInMemory, AReasonCountsMore) {
  CallFacts theirs;
  theirs.collective = Collective::all_gather;
  theirs_.recent[0].write(0, theirs);
  revoke_with_enough();
  Operation& mine = start_another_call();
  engine_->step();
  expect_enough(error_of(mine));
}

}  // namespace
}  // namespace lockstep::internal
