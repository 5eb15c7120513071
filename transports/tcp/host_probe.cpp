#include "transports/tcp/host_probe.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/env.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {

ReachRow HostProbe::run(const std::vector<ProbeTarget>& targets, std::chrono::milliseconds timeout) {
  reactor_.run_there([&] { start(targets, timeout); });
  done_.get_future().wait();
  reactor_.run_there([this] {
    for (Effort& effort : efforts_) {
      for (Call& call : effort.calls) call.call.reset();
    }
  });
  const std::string silence = "no answer within " + std::to_string(timeout.count()) + " ms";
  ReachRow row;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (efforts_[i].untried && efforts_[i].answered == 0) continue;
    HostReach reach{targets[i].host, efforts_[i].reached, {}, {}};
    for (const Call& call : efforts_[i].calls) {
      if (all_ways_ && call.answered) reach.rails.push_back(call.address.host);
      if (!reach.address.empty()) continue;
      reach.why +=
          "\n    " + (call.failure.empty() ? silence + " from " + call.address.text() : call.failure);
    }
    row.push_back(std::move(reach));
  }
  return row;
}

void HostProbe::start(const std::vector<ProbeTarget>& targets, std::chrono::milliseconds timeout) {
  timer_ = reactor_.at(real_env().now() + to_nanos(timeout), [this] { end(); });
  for (const ProbeTarget& target : targets) {
    Effort& effort = efforts_.emplace_back();
    effort.name = target.name;
    effort.hello = hello_;
    effort.hello.peer = target.rank;
    for (const HostPort& address : target.addresses) effort.calls.emplace_back().address = address;
  }
  // Nothing moves from here on: calls are known by their place.
  for (Effort& effort : efforts_) {
    for (Call& call : effort.calls) begin(effort, call);
  }
  end_if_settled();
}

void HostProbe::begin(Effort& effort, Call& call) {
  ++call.attempts;
  call.call = std::make_unique<OutgoingCall>(
      reactor_, real_env(), key_, effort.hello, call.address,
      [this, &effort, &call](OutgoingCall::Outcome outcome, const Status& why) {
        called(effort, call, outcome, why);
      });
  call.call->start();
}

// The call is still running this function: it ends with that, or with run().
void HostProbe::called(Effort& effort, Call& call, OutgoingCall::Outcome outcome, const Status& why) {
  // As of a call that came while others of a large job had all places of the acceptor.
  if (outcome == OutgoingCall::Outcome::broken && !ended_ && call.attempts < kConnectAttempts) {
    const std::unique_ptr<OutgoingCall> before = std::move(call.call);
    return begin(effort, call);
  }
  if (outcome != OutgoingCall::Outcome::connected) {
    call.failure = effort.name + ": " + why.message();
    effort.untried |= why.culprit() < 0;  // This side's own lack.
    ++effort.failed;
  } else {
    call.answered = true;
    if (effort.answered++ == 0) effort.reached = call.address.host;
  }
  end_if_settled();
}

void HostProbe::end_if_settled() {
  if (ended_) return;  // Calls go on answering until run() stops them.
  const auto all = [&](bool (Effort::*is)() const) {
    return std::all_of(efforts_.begin(), efforts_.end(),
                       [&](const Effort& effort) { return (effort.*is)(); });
  };
  if (!all(&Effort::settled)) return;
  if (!all_ways_ || all(&Effort::complete)) return end();
  if (patience_ == 0)
    patience_ = reactor_.at(real_env().now() + to_nanos(kNextAddressDelay), [this] { end(); });
}

void HostProbe::end() {
  if (std::exchange(ended_, true)) return;
  reactor_.remove(timer_);
  reactor_.remove(patience_);
  done_.set_value();
}

}  // namespace lockstep::internal
