// An engine over links that a test moves by hand, and in its time: rank 0, whose peers are what the test
// says.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "tests/engine/made_up_group.hpp"
#include "tests/engine/scripted_links.hpp"

namespace lockstep::internal::testing {

inline constexpr Nanos kMilli = 1'000'000;

class StandingEnv final : public Env {
 public:
  Nanos now() noexcept override { return time; }
  std::uint64_t random() noexcept override { return 7; }
  void wake_at(Nanos when) noexcept override { wake = when; }
  Nanos time = 1'000 * kMilli;
  Nanos wake = 0;  // What was asked for last.
};

inline Call barrier(Nanos timeout = 0) {
  Call call;
  call.timeout = timeout;
  return call;
}

class FailingEngine : public ::testing::Test {
 protected:
  void make(int size, std::unique_ptr<Domain> memory = nullptr, Reactor* reactor = nullptr) {
    auto transport = std::make_unique<ScriptedTransport>();
    transport_ = transport.get();
    transport->memory = std::move(memory);
    engine_ =
        std::make_shared<Engine>(made_up_group(0, size, "scripted"), std::move(transport), env_, reactor);
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

/// On a link of rank 1 or another.
inline void say_enough(ScriptedLink& link) {
  link.heads.push_back(frame(FrameKind::revoke, 0, 10));
  link.text = "5 1 enough";
}
inline void expect_enough(const Status& status) {
  EXPECT_EQ(status.code(), ErrorCode::aborted) << status.message();
  EXPECT_NE(status.message().find("enough"), std::string::npos) << status.message();
}

}  // namespace lockstep::internal::testing
