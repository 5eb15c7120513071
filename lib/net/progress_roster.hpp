// ProgressRoster: the progressors of the reactor, and which of them may sleep. Kept apart from the reactor so
// that each of the two has one kind of caller to think about.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/net/reactor.hpp"

namespace lockstep::internal {

/// add, remove and request are thread-safe; step, arm and disarm belong to one thread (the owner).
class ProgressRoster {
 public:
  void add(Progressor* progressor);
  /// After it returned `progressor` is disarmed, not running and never called again. `wake_owner` makes a
  /// sleeping owner disarm soon; empty when called on the owner's thread (perhaps from inside progress()).
  void remove(Progressor* progressor, const std::function<void()>& wake_owner);
  /// Work was started somewhere: the next step() asks the idle ones too.
  void request() noexcept { requested_.store(true); }
  bool requested() const noexcept { return requested_.load(); }

  /// Calls everyone that is not idle once. moved if one moved, else stuck if one is stuck, else idle.
  Progressor::Outcome step();

  struct Armed {
    std::vector<int> descriptors;  ///< Become readable when somebody can go on.
    bool blind = false;            ///< Somebody is stuck and has no descriptor: look again soon.
  };
  /// Arms everyone that is not idle. Valid until disarm().
  const Armed& arm();
  /// Calls everyone that is armed once more, and nobody else: whether one moved.
  bool step_armed();
  void disarm();

 private:
  struct Entry {
    Progressor* progressor = nullptr;
    bool idle = false;     // Owner only.
    bool armed = false;    // Owner only.
    bool removed = false;  // Under mutex_.
    bool in_use = false;   // Under mutex_: running or armed, so that a remover has to wait.
  };
  template <typename Call>
  void use(Entry& entry, Call call);
  void refresh();
  bool list(int descriptor);

  std::mutex mutex_;
  std::condition_variable released_;
  std::vector<std::shared_ptr<Entry>> entries_;  // Under mutex_.
  bool changed_ = false;                         // Under mutex_: entries_ differs from roster_.
  std::vector<std::shared_ptr<Entry>> roster_;   // The owner's copy of entries_.
  Armed armed_;
  std::atomic<bool> requested_{false};
};

}  // namespace lockstep::internal
