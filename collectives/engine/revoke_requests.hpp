// RevokeRequests: what other threads want of an engine whose lock they do not have.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Any thread may ask; the engine looks whether somebody has whenever it makes progress, which costs it one
/// load. Its own lock is never held with the engine's wanted.
class RevokeRequests {
 public:
  explicit RevokeRequests(int ranks) : losses_(static_cast<std::size_t>(ranks)) {}

  /// The first reason wins.
  void ask(Status why) {
    {
      std::lock_guard guard(mutex_);
      if (why_.ok()) why_ = std::move(why);
    }
    look_again();
  }
  /// Of a rank that died or left.
  void lose(int rank) {
    std::lock_guard guard(mutex_);
    losses_[static_cast<std::size_t>(rank)] = true;
  }

  /// Whether there is something that take() has not seen.
  bool pending() const { return pending_.load(std::memory_order_acquire); }
  bool take() {
    if (!pending()) return false;
    pending_.store(false, std::memory_order_relaxed);
    return true;
  }
  void look_again() { pending_.store(true, std::memory_order_release); }

  /// Why the communicator is to end; ok when nobody asks for it. That stays, since it may explain what a call
  /// finds before it is carried out. `lost`, by rank, learns of those that are.
  Status standing(std::vector<bool>& lost) {
    std::lock_guard guard(mutex_);
    for (std::size_t rank = 0; rank < lost.size(); ++rank) lost[rank] = lost[rank] || losses_[rank];
    return why_;
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> pending_{false};
  Status why_;
  std::vector<bool> losses_;
};

}  // namespace lockstep::internal
