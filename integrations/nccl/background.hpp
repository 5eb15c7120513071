// Work that no caller should have to wait for, and how long a caller waits for it all the same.
#pragma once

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace lockstep::nccl {

/// Of a piece of work, which is reached once.
class Ending {
 public:
  void reach();
  void wait();
  bool is_reached();
  void wait_until(std::chrono::steady_clock::time_point limit);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
};
using Endings = std::vector<std::shared_ptr<Ending>>;

/// While it lives the calling thread takes no signals, and threads that it starts never do: the program's
/// handlers run on the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Runs `work` on a thread of its own, or here where there are no more threads. What it holds is dropped by
/// that thread, before the ending is reached. `work` throws nothing.
std::shared_ptr<Ending> in_background(std::function<void()> work);

/// For all of them, and at most so long.
void wait_for(const Endings& endings, std::chrono::milliseconds patience);

}  // namespace lockstep::nccl
