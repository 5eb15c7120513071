#include "integrations/nccl/background.hpp"

#include <system_error>
#include <thread>
#include <utility>

namespace lockstep::nccl {

void Ending::reach() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  changed_.notify_all();
}

void Ending::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_; });
}

bool Ending::is_reached() {
  const std::lock_guard lock(mutex_);
  return over_;
}

void Ending::wait_until(std::chrono::steady_clock::time_point limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, limit, [this] { return over_; });
}

SignalsBlocked::SignalsBlocked() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::shared_ptr<Ending> in_background(std::function<void()> work) {
  const auto ending = std::make_shared<Ending>();
  // Shared, so that nothing of it is left to the caller's copy.
  const auto shared = std::make_shared<std::function<void()>>(std::move(work));
  const auto run = [shared, ending] {
    (*shared)();
    *shared = nullptr;
    ending->reach();
  };
  try {
    const SignalsBlocked blocked;
    std::thread(run).detach();
  } catch (const std::system_error&) {
    run();
  }
  return ending;
}

void wait_for(const Endings& endings, std::chrono::milliseconds patience) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  for (const std::shared_ptr<Ending>& ending : endings) ending->wait_until(limit);
}

}  // namespace lockstep::nccl
