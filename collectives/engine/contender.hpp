// Contender: the engine's lock, taken so that a thread in the middle of progress makes room.
#pragma once

#include <sched.h>

#include <atomic>
#include <mutex>

#include "collectives/engine/engine.hpp"

namespace lockstep::internal {

/// Counts itself while it waits for the lock; progress loops look at the count and let go.
class Engine::Contender {
 public:
  explicit Contender(Engine& engine) : engine_(engine), lock_(engine.mutex_, std::try_to_lock) {
    if (!lock_.owns_lock()) lock();
  }
  void lock() {
    engine_.contenders_.fetch_add(1, std::memory_order_relaxed);
    lock_.lock();
    engine_.contenders_.fetch_sub(1, std::memory_order_relaxed);
  }
  void unlock() { lock_.unlock(); }
  void make_way() {
    unlock();
    sched_yield();
    lock();
  }
  std::unique_lock<std::mutex>& held() { return lock_; }

 private:
  Engine& engine_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace lockstep::internal
