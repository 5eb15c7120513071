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
  void wake_at(Nanos when) noexcept override {
    if (when != kForever) schedule_.wake(rank_, when);
  }

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
  if (state(rank).wakes.insert(when).second) queue_.push({when, next_id_++, rank});
}

void SimSchedule::at(Nanos when, std::function<void()> action) {
  actions_.emplace(next_id_, std::move(action));
  queue_.push({std::max(when, now_), next_id_++, kAction});
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

bool SimSchedule::accept_step(int rank, Nanos when) {
  RankState& target = state(rank);
  target.wakes.erase(when);
  if (target.crashed) return false;
  if (target.paused) target.missed = true;
  return !target.paused;
}

bool SimSchedule::advance(const std::function<void(int)>& step) {
  if (queue_.empty()) return false;
  const Event event = queue_.top();
  queue_.pop();
  now_ = event.when;
  ++events_;
  note(static_cast<std::uint64_t>(event.when));
  note(static_cast<std::uint64_t>(event.rank));
  if (event.rank == kAction) {
    auto action = actions_.extract(event.id);
    action.mapped()();
  } else if (accept_step(event.rank, event.when)) {
    step(event.rank);
  }
  return true;
}

}  // namespace lockstep::internal
