#include "transports/sim/sim_env.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep::internal {

std::uint64_t SimRandom::next() noexcept {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

// An exponential draw by halves: each further leading zero of a random word halves the chance of a longer
// time. In integers, because the logarithm of the C library may differ in its last bit between machines.
Nanos SimDelay::draw(SimRandom& random) const noexcept {
  if (extra == 0) return least;
  const int halves = std::countl_zero(random.next());
  const auto within = static_cast<Nanos>(random.below(static_cast<std::uint64_t>(extra)));
  return least + (halves * extra + within) * 2 / 3;
}

class SimSchedule::RankEnv final : public Env {
 public:
  RankEnv(SimSchedule& schedule, int rank, std::uint64_t seed) noexcept
      : schedule_(schedule), rank_(rank), random_(seed) {}
  Nanos now() noexcept override { return schedule_.now(); }
  std::uint64_t random() noexcept override { return random_.next(); }
  void wake_at(Nanos when) noexcept override { schedule_.set_timer(rank_, when); }

 private:
  SimSchedule& schedule_;
  int rank_;
  SimRandom random_;
};

SimSchedule::SimSchedule(int ranks, std::uint64_t seed)
    : random_(seed), states_(static_cast<std::size_t>(ranks)) {
  SimRandom seeds(hash_combine(kFnvOffset, seed));
  for (int rank = 0; rank < ranks; ++rank) {
    state(rank).env = std::make_unique<RankEnv>(*this, rank, seeds.next());
  }
}

SimSchedule::~SimSchedule() = default;

Env& SimSchedule::env(int rank) noexcept { return *state(rank).env; }

void SimSchedule::wake(int rank, Nanos when) {
  if (state(rank).crashed) return;
  when = std::max(when, now_);
  if (state(rank).wakes.insert(when).second) push(when, Kind::step, rank);
}

void SimSchedule::at(Nanos when, std::function<void()> action) {
  actions_.emplace(next_id_, std::move(action));
  push(std::max(when, now_), Kind::action, -1);
}

void SimSchedule::crash(int rank) {
  if (std::exchange(state(rank).crashed, true)) return;
  for (const auto& listener : listeners_) listener(rank);
}

void SimSchedule::pause(int rank) { state(rank).paused = true; }

void SimSchedule::resume(int rank) {
  state(rank).paused = false;
  if (std::exchange(state(rank).missed, false)) wake(rank, now_);
}

// A rank asks again in every step, mostly for later than before: one event per rank follows its wishes, where
// an event for every wish would fill the queue.
void SimSchedule::set_timer(int rank, Nanos when) {
  RankState& target = state(rank);
  target.timer = std::min(target.timer, std::max(when, now_));
  if (target.timer >= target.armed) return;
  target.armed = target.timer;
  push(target.armed, Kind::timer, rank);
}

bool SimSchedule::timer_is_due(int rank, Nanos when) {
  RankState& target = state(rank);
  if (when != target.armed) return false;
  target.armed = kForever;
  if (target.timer <= when) return true;
  if (target.timer != kForever) set_timer(rank, target.timer);
  return false;
}

void SimSchedule::run_step(int rank, const std::function<void(int)>& step) {
  RankState& target = state(rank);
  if (target.crashed) return;
  target.missed = target.missed || target.paused;
  if (target.paused) return;
  target.timer = kForever;
  step(rank);
}

bool SimSchedule::advance(const std::function<void(int)>& step) {
  if (queue_.empty()) return false;
  const Event event = queue_.top();
  queue_.pop();
  now_ = event.when;
  ++events_;
  note(static_cast<std::uint64_t>(event.when));
  note(static_cast<std::uint64_t>(event.rank));
  switch (event.kind) {
    case Kind::action:
      actions_.extract(event.id).mapped()();
      break;
    case Kind::timer:
      if (timer_is_due(event.rank, event.when)) run_step(event.rank, step);
      break;
    case Kind::step:
      state(event.rank).wakes.erase(event.when);
      run_step(event.rank, step);
      break;
  }
  return true;
}

}  // namespace lockstep::internal
