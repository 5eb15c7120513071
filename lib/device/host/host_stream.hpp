// A stream of the host backend: a thread that runs what is enqueued, in order; and the events of streams.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lib/base/env.hpp"

namespace lockstep::internal {

/// A point that somebody reaches once and others wait for.
class Milestone {
 public:
  void reach();
  bool reached();
  /// When; only once it is reached.
  Nanos reached_at();
  void wait();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool reached_ = false;
  Nanos reached_at_ = 0;
};

/// Its thread outlives it until the queue is empty. A thread that waits for a word which nobody writes never
/// ends; it does not keep the process from ending.
class HostStream {
 public:
  using Task = std::function<void()>;

  explicit HostStream(int device);
  ~HostStream();
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  int device() const { return device_; }
  std::uint64_t number() const { return number_; }  ///< Of no other stream.
  /// Runs later, or is only recorded.
  void enqueue(Task task);
  /// Everything enqueued so far has run.
  void synchronize();
  /// False: it has not within `limit`.
  bool synchronize_for(std::chrono::milliseconds limit);
  bool idle();

  /// From here on tasks are recorded in place of run. False: they are already.
  bool begin_recording();
  bool recording();
  /// What was recorded; nothing where nobody began.
  std::optional<std::vector<Task>> end_recording();

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable came, ended;  ///< For the stream's thread; for who waits for it.
    std::deque<Task> tasks;
    std::uint64_t enqueued = 0, finished = 0;
    bool closed = false;  ///< No more will come.
    std::optional<std::vector<Task>> recorded;
  };
  static void work(const std::shared_ptr<Queue>& queue);

  const int device_;
  const std::uint64_t number_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

/// What was recorded last; thread-safe.
class HostEvent {
 public:
  /// Enqueues the milestone on `stream`.
  void record(HostStream& stream);
  /// Null when nothing was recorded.
  std::shared_ptr<Milestone> last();

 private:
  std::mutex mutex_;
  std::shared_ptr<Milestone> last_;
};

}  // namespace lockstep::internal
