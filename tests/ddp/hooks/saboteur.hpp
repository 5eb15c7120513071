// A hook that does what another one does, until it throws.
#pragma once

#include <atomic>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep {

class Saboteur final : public CommunicationHook {
 public:
  /// Throws at the call of that number, counted from 1: before or after the other hook's, one of four things.
  Saboteur(std::shared_ptr<CommunicationHook> inner, std::size_t throws_at, std::size_t how)
      : inner_(std::move(inner)), throws_at_(throws_at), how_(how) {}

  /// The call in which it threw; empty when it did not.
  std::string threw_in() const { return threw_ ? where_ : std::string(); }

  std::string name() const override { return inner_->name(); }
  bool wants_whole_gradients() const override { return inner_->wants_whole_gradients(); }
  bool leaves_gradients_local() const override { return inner_->leaves_gradients_local(); }
  void attach(Communicator& communicator, const BucketPlan& plan,
              std::span<const Parameter> parameters) override {
    before("attach");
    inner_->attach(communicator, plan, parameters);
    after();
  }
  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    before("start");
    Work work = inner_->start(communicator, bucket);
    after();
    return work;
  }
  void finish(const GradientBucket& bucket) override {
    before("finish");
    inner_->finish(bucket);
    after();
  }
  void end_step(bool good) override {
    inner_->end_step(good);  // What it keeps counts.
    before(good ? "end_step(true)" : "end_step(false)");
    after();
  }
  std::vector<HookTensor> state() override {
    before("state");
    auto list = inner_->state();
    after();
    return list;
  }
  std::uint64_t bytes_on_wire() const override { return inner_->bytes_on_wire(); }

 private:
  void before(const char* where) {
    now_ = ++calls_ == throws_at_;
    if (now_) where_ = where;
    if (how_ % 2 == 0) after();
  }
  void after() {
    if (!std::exchange(now_, false)) return;
    threw_ = true;
    switch (how_ / 2 % 4) {
      case 0:
        throw std::runtime_error("sabotage");
      case 1:
        throw Error(ErrorCode::internal, "sabotage");
      case 2:
        throw 7;
      default:
        throw std::bad_alloc();
    }
  }

  const std::shared_ptr<CommunicationHook> inner_;
  const std::size_t throws_at_, how_;
  std::size_t calls_ = 0;
  bool now_ = false;
  std::string where_;
  std::atomic<bool> threw_{false};
};

}  // namespace lockstep
