#include "transports/tcp/address_race.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "transports/tcp/limits.hpp"

namespace lockstep::internal {

AddressRace::AddressRace(Reactor& reactor, Env& env, const HandshakeKey& key, const HandshakeHello& hello,
                         std::vector<HostPort> addresses, std::function<void(Outcome, Status)> done)
    : reactor_(reactor),
      env_(env),
      key_(key),
      hello_(hello),
      addresses_(std::move(addresses)),
      done_(std::move(done)),
      failures_(addresses_.size()) {}

AddressRace::~AddressRace() { reactor_.remove(timer_); }

void AddressRace::call_next() {
  reactor_.remove(std::exchange(timer_, 0));
  const std::size_t which = calls_.size();
  if (which == addresses_.size()) return;
  if (which + 1 < addresses_.size()) {
    timer_ = reactor_.at(env_.now() + to_nanos(kNextAddressDelay), [this] { call_next(); });
  }
  calls_.push_back(std::make_unique<OutgoingCall>(
      reactor_, env_, key_, hello_, addresses_[which],
      [this, which](Outcome outcome, Status why) { called(which, outcome, std::move(why)); },
      [this, which] { passed(which); }));
  calls_.back()->start();  // May end the race, and this with it.
}

void AddressRace::passed(std::size_t which) {
  any_passed_ = true;
  reactor_.remove(std::exchange(timer_, 0));
  for (std::size_t other = 0; other < calls_.size(); ++other) {
    if (other != which) calls_[other].reset();
  }
}

void AddressRace::called(std::size_t which, Outcome outcome, Status why) {
  if (outcome == Outcome::connected) {
    socket_ = calls_[which]->take_socket();
    return finish(outcome, {});
  }
  if (any_passed_) return finish(outcome, std::move(why));
  // The call is still running this function: it ends with the race.
  failures_[which] = std::move(why);
  hope_ = std::max(hope_, outcome);
  any_refused_ |= outcome == Outcome::refused;
  if (++failed_ == addresses_.size())
    return finish(any_refused_ ? std::min(hope_, Outcome::broken) : hope_, all_failed());
  if (failed_ < calls_.size()) return;
  try {
    call_next();
  } catch (const std::bad_alloc&) {  // The call that would have tried again is over.
    finish(Outcome::broken, failures_[which]);
  }
}

void AddressRace::finish(Outcome outcome, Status why) {
  reactor_.remove(std::exchange(timer_, 0));
  const auto done = std::move(done_);  // May destroy this.
  done(outcome, std::move(why));
}

Status AddressRace::all_failed() const try {
  if (failures_.size() == 1) return failures_.front();
  const auto own = std::find_if(failures_.begin(), failures_.end(),
                                [](const Status& failure) { return failure.culprit() < 0; });
  if (own != failures_.end()) return *own;  // The peer may well be there.
  std::string text = "none of its addresses answers:";
  ErrorCode code = ErrorCode::peer_lost;
  for (const Status& failure : failures_) {
    text += "\n  " + failure.message();
    if (failure.code() != ErrorCode::peer_lost) code = failure.code();
  }
  return Status(code, std::move(text), hello_.peer);
} catch (const std::bad_alloc&) {
  return failures_.front();
}

}  // namespace lockstep::internal
