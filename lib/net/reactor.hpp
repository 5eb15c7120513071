// Reactor: a thread that waits for descriptors, timers and tasks. The process has one for control and
// progress: it accepts connections, runs handshakes, watches for dead peers, and steps the operations that
// nobody waits for. It may wait for another process, which hands over memory; so that two never wait for each
// other, what others wait for is served by a second one. Nothing on the fast path passes through either.
#pragma once

#include <cstdint>
#include <functional>

#include "lib/base/env.hpp"

namespace lockstep::internal {

/// Something that can make progress without a caller: a communicator's engine with unattended operations.
class Progressor {
 public:
  virtual ~Progressor() = default;
  enum class Outcome {
    idle,   ///< Nothing unattended: do not call again until notify().
    moved,  ///< Something moved: call again soon.
    stuck,  ///< Unattended work waits for a peer.
  };
  /// Called on the reactor's thread; must not block (gives up when a caller holds the engine).
  virtual Outcome progress() = 0;
  /// Called before the reactor sleeps because everything is stuck: declares this side asleep and returns a
  /// descriptor that becomes readable when progress is possible, or -1. After sleeping, disarm() is called.
  /// No sleep of a thread with somebody armed lasts long: progress() may look at the clock.
  virtual int arm() = 0;
  virtual void disarm() = 0;
};

class Reactor {
 public:
  /// The process's reactor; its thread starts with the first use. Never destroyed before exit. Throws Error
  /// where the system has no thread or no file descriptor for it.
  static Reactor& instance();
  /// The second one. Its callbacks wait for nobody.
  static Reactor& serving();
  virtual ~Reactor() = default;

  /// A callback that throws std::bad_alloc is called again in a moment, as a watch, a timer or a task: what
  /// it must not do twice it does last. Long in vain, that is said on stderr. It throws nothing else.
  using Handle = std::uint64_t;
  /// Calls `ready(events)` on the reactor's thread whenever epoll reports `events` (EPOLLIN ...) for `fd`.
  /// The caller keeps the fd open until remove() returned, and has one watch on it at a time. Returns 0 when
  /// the kernel refuses (errno says why).
  virtual Handle watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> ready) = 0;
  virtual void modify(Handle handle, std::uint32_t events) = 0;
  /// Calls `fire()` once at `when`.
  virtual Handle at(Nanos when, std::function<void()> fire) = 0;
  /// After it returned the callback is not running and will not run (called on the reactor's thread: will not
  /// run again).
  virtual void remove(Handle handle) = 0;
  /// Runs `task` on the reactor's thread soon.
  virtual void post(std::function<void()> task) = 0;
  /// Runs `task` on the reactor's thread and returns after it ended; directly when called there. The caller
  /// holds no lock that a callback may take. What it throws the caller gets. For setting up and taking down
  /// what lives on that thread alone.
  virtual void run_there(const std::function<void()>& task) = 0;

  virtual void add(Progressor* progressor) = 0;
  virtual void remove(Progressor* progressor) = 0;
  /// Unattended work was started on some progressor: wakes the thread if it sleeps.
  virtual void notify() = 0;
};

/// Whether this is a reactor's thread, on which nobody waits.
bool on_reactor_thread() noexcept;

}  // namespace lockstep::internal
