// When an engine asks the reactor's thread for its steps, and what it says there is left to do.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "tests/engine/failing_engine.hpp"

namespace lockstep::internal {
namespace {

using testing::barrier;
using testing::FailingEngine;
using testing::frame;
using Outcome = Progressor::Outcome;

/// Of which a test is the thread.
class CountingReactor final : public Reactor {
 public:
  Handle watch(int, std::uint32_t, std::function<void(std::uint32_t)>) override { return 0; }
  void modify(Handle, std::uint32_t) override {}
  Handle at(Nanos, std::function<void()>) override { return 0; }
  void remove(Handle) override {}
  void post(std::function<void()>) override {}
  void run_there(const std::function<void()>& task) override { task(); }
  void add(Progressor*) override {}
  void remove(Progressor*) override {}
  void notify() override { ++notified; }

  int notified = 0;
};

class UnattendedEngine : public FailingEngine {
 protected:
  UnattendedEngine() { make(2, nullptr, &reactor_); }
  ~UnattendedEngine() override {
    for (Operation* operation : operations_) engine_->release(operation);
    operations_.clear();
    engine_.reset();  // Before its reactor.
  }
  Outcome progress() {
    reactor_.notified = 0;
    return engine_->progress();
  }
  Message message(bool is_send) {
    Message message;
    message.is_send = is_send;
    message.buffer = memory_.data();
    message.count = 1;
    message.peer = 1;
    return message;
  }

  CountingReactor reactor_;
  std::array<std::byte, 99> memory_{};
};

TEST_F(UnattendedEngine, IsToBeSteppedWhileACallWaits) {
  EXPECT_EQ(progress(), Outcome::idle);
  link(1);
  const Operation& call = start(barrier());
  EXPECT_GT(reactor_.notified, 0);
  EXPECT_EQ(progress(), Outcome::stuck);
  link(1).heads.push_back(frame(FrameKind::data, 0));
  EXPECT_EQ(progress(), Outcome::idle);
  EXPECT_TRUE(call.done && call.status.ok());
}

TEST_F(UnattendedEngine, IsToBeSteppedAfterAWaitThatExpired) {
  link(1);
  Operation& call = start(barrier());
  EXPECT_EQ(progress(), Outcome::stuck);
  EXPECT_FALSE(engine_->wait(call, 0));
  EXPECT_GT(reactor_.notified, 0);
  EXPECT_EQ(progress(), Outcome::stuck);
}

// Though the same operation was waited for before, as another call.
TEST_F(UnattendedEngine, IsToBeSteppedForACallAfterOneThatWasWaitedFor) {
  link(1);
  Operation& first = start(barrier());
  link(1).heads.push_back(frame(FrameKind::data, 0));
  EXPECT_TRUE(engine_->wait(first));
  engine_->release(operations_.back());
  operations_.pop_back();
  EXPECT_EQ(&start(barrier()), &first);
  EXPECT_EQ(progress(), Outcome::stuck);
}

/// Its call was over at once, and its caller may look no more.
TEST_F(UnattendedEngine, TellsWhoHasNoLinkYetThatACallWasRefused) {
  Call refused = barrier();
  refused.refusal = Status(ErrorCode::invalid_argument, "no");
  EXPECT_EQ(error_of(start(refused)).code(), ErrorCode::invalid_argument);
  EXPECT_GT(reactor_.notified, 0);
  EXPECT_EQ(progress(), Outcome::stuck);
  link(1);
  EXPECT_EQ(progress(), Outcome::idle);
  EXPECT_EQ(count_sent(1, FrameKind::revoke), 1u);
}

TEST_F(UnattendedEngine, TellsBeforeItLeaves) {
  Call refused = barrier();
  refused.refusal = Status(ErrorCode::invalid_argument, "no");
  start(refused);
  link(1);
  engine_->close();
  EXPECT_EQ(count_sent(1, FrameKind::revoke), 1u);
}

TEST_F(UnattendedEngine, LetsGoOfMemoryThatPeersHeldWhenItFailed) {
  link(1), link(1, Channel::urgent);
  transport_->held = 1'000;
  const Operation& call = start(barrier());
  engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
  EXPECT_EQ(progress(), Outcome::moved);
  EXPECT_FALSE(call.done);
  env_.time += kQuiesceWait;
  EXPECT_EQ(progress(), Outcome::idle);
  EXPECT_TRUE(call.done);
}

TEST_F(UnattendedEngine, SendsARefusalWhoseReceiveIsOver) {
  testing::ScriptedLink& mail = link(1, Channel::point_to_point);
  mail.ends_sends = false;
  FrameHeader offer = frame(FrameKind::offer);
  offer.facts.count = kEagerBytes + 1;
  mail.heads.push_back(offer);
  EXPECT_EQ(error_of(start(message(false))).code(), ErrorCode::invalid_argument);
  EXPECT_GT(reactor_.notified, 0);
  EXPECT_EQ(progress(), Outcome::moved);
  EXPECT_EQ(progress(), Outcome::stuck);
  mail.ends_sends = true;
  EXPECT_EQ(progress(), Outcome::idle);
  EXPECT_EQ(count_sent(1, FrameKind::accept, Channel::point_to_point), 1u);
}

TEST_F(UnattendedEngine, SendsWhatALinkHasTakenAndNotSent) {
  link(1, Channel::point_to_point);
  transport_->owes = true;
  const Operation& sent = start(message(true));
  EXPECT_TRUE(sent.done && sent.status.ok());
  EXPECT_GT(reactor_.notified, 0);
  EXPECT_EQ(progress(), Outcome::stuck);
  transport_->owes = false;
  EXPECT_EQ(progress(), Outcome::idle);
}

// What came to their links before is no event any more.
TEST_F(UnattendedEngine, LooksOnceMoreAtCallsThatAreJustHeldAndDoesNotSleepBeforeTheyGoOn) {
  link(1);
  Call urgent;
  urgent.facts.collective = Collective::broadcast;
  urgent.facts.root = 1;
  urgent.facts.count = urgent.output_elements = memory_.size();
  urgent.output = memory_.data();
  urgent.priority = 1;
  FrameHeader half = frame(FrameKind::data, 0, memory_.size());
  half.facts = urgent.facts;
  link(1, Channel::urgent).heads.push_back(half);
  link(1, Channel::urgent).come = 0;
  start(urgent);
  link(1, Channel::urgent).come = 10;
  EXPECT_EQ(progress(), Outcome::moved);
  start(barrier());
  EXPECT_EQ(progress(), Outcome::moved) << "it is held from now on";
  EXPECT_EQ(progress(), Outcome::stuck);
  EXPECT_EQ(engine_->arm(), -1);
  env_.time += kUrgentPause;
  EXPECT_EQ(progress(), Outcome::stuck);
  EXPECT_GE(engine_->arm(), 0);
  engine_->disarm();
}

}  // namespace
}  // namespace lockstep::internal
