// OutsideCode: which thread is in code that is not the engine's, called under its lock.
#pragma once

#include <atomic>
#include <thread>

namespace lockstep::internal {

/// A user's operator, or the hook of an operation, may ask the engine for a revoke: its thread has the lock,
/// and must not try it, which for a std::mutex is undefined.
class OutsideCode {
 public:
  /// While it lives, this thread, which has the lock, is in such code, if `really`.
  class Call {
   public:
    explicit Call(OutsideCode& code, bool really = true) : code_(code), before_(code.thread()) {
      if (really) code_.thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    ~Call() { code_.thread_.store(before_, std::memory_order_relaxed); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    OutsideCode& code_;
    const std::thread::id before_;
  };

  /// Whether this thread is in such code. Any thread may ask: what others store is never its own number.
  bool is_here() const { return thread() == std::this_thread::get_id(); }

 private:
  std::thread::id thread() const { return thread_.load(std::memory_order_relaxed); }
  std::atomic<std::thread::id> thread_{};
};

}  // namespace lockstep::internal
