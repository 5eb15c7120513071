// SimSchedule: virtual time, one queue of events and one seed for whole groups of ranks in one thread.
// Nothing here reads a clock or the machine, so a seed replays the same run everywhere; hash() proves it.
//
// An event either steps one rank or runs an action (a fault). Events at one time run in the order in which
// they were scheduled. A crashed rank is never stepped again; a paused one is stepped when it is resumed. Not
// thread-safe: everything simulated lives in one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): 64 bits of state, any seed is good.
class SimRandom {
 public:
  explicit SimRandom(std::uint64_t seed) noexcept : state_(seed) {}
  std::uint64_t next() noexcept;
  /// 0 .. bound-1; bound >= 1.
  std::uint64_t below(std::uint64_t bound) noexcept { return next() % bound; }
  /// True once in `n` draws.
  bool one_in(std::uint64_t n) noexcept { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

/// How long something takes: at least `least`, plus a random time with a long tail around `extra`.
struct SimDelay {
  Nanos least = 1'000;
  Nanos extra = 5'000;
  Nanos draw(SimRandom& random) const noexcept;
};

class SimSchedule {
 public:
  SimSchedule(int ranks, std::uint64_t seed);
  SimSchedule(const SimSchedule&) = delete;
  SimSchedule& operator=(const SimSchedule&) = delete;
  ~SimSchedule();

  int ranks() const noexcept { return static_cast<int>(states_.size()); }
  Nanos now() const noexcept { return now_; }
  /// The network's randomness. Ranks draw from their own Env, so that their draws do not shift the network's.
  SimRandom& random() noexcept { return random_; }
  /// What `rank` sees of time and chance. Lives as long as the schedule.
  Env& env(int rank) noexcept;

  /// Steps `rank` at `when` (not before now).
  void wake(int rank, Nanos when);
  /// Runs `action` at `when` (not before now).
  void at(Nanos when, std::function<void()> action);

  /// Takes effect now; in the future by at(). A crash is final, and listeners learn of it at once.
  void crash(int rank);
  void pause(int rank);
  void resume(int rank);
  bool crashed(int rank) const noexcept { return states_[static_cast<std::size_t>(rank)].crashed; }
  /// `listener` is called with the rank of every crash to come, in order of registration.
  void on_crash(std::function<void(int)> listener) { listeners_.push_back(std::move(listener)); }

  /// Runs the next event, with `step` for the rank it steps. False when no event is left.
  bool advance(const std::function<void(int)>& step);

  /// Folds a fact into the hash of the run.
  void note(std::uint64_t fact) noexcept { hash_ = hash_combine(hash_, fact); }
  /// Over every event and noted fact so far: equal seeds give equal hashes.
  std::uint64_t hash() const noexcept { return hash_; }
  std::uint64_t events() const noexcept { return events_; }

 private:
  class RankEnv;
  enum class Kind : std::uint8_t { step, timer, action };
  struct Event {
    Nanos when;
    std::uint64_t id;
    Kind kind;
    int rank;
    bool operator>(const Event& other) const noexcept {
      return when != other.when ? when > other.when : id > other.id;
    }
  };
  struct RankState {
    std::unique_ptr<RankEnv> env;
    std::set<Nanos> wakes;   ///< Scheduled steps: asking twice for one moment schedules one event.
    Nanos timer = kForever;  ///< What its Env was asked for since its last step.
    Nanos armed = kForever;  ///< The one timer event in the queue that counts.
    bool crashed = false;
    bool paused = false;
    bool missed = false;  ///< A step fell into the pause.
  };
  RankState& state(int rank) noexcept { return states_[static_cast<std::size_t>(rank)]; }
  void push(Nanos when, Kind kind, int rank) { queue_.push({when, next_id_++, kind, rank}); }
  void set_timer(int rank, Nanos when);
  /// Whether a timer event is due; one that came early is moved on.
  bool timer_is_due(int rank, Nanos when);
  /// Steps the rank now, unless it crashed or is paused.
  void run_step(int rank, const std::function<void(int)>& step);

  SimRandom random_;
  Nanos now_ = 0;
  std::uint64_t next_id_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t hash_ = kFnvOffset;
  std::vector<RankState> states_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  std::map<std::uint64_t, std::function<void()>> actions_;  ///< By event id.
  std::vector<std::function<void(int)>> listeners_;
};

}  // namespace lockstep::internal
