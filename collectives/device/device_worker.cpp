#include "collectives/device/device_worker.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace lockstep::internal {

DeviceWorker::DeviceWorker(std::function<void(DeviceTask&)> run) : run_(std::move(run)) {
  sigset_t all, before;  // The program's signal handlers run on its own threads.
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

DeviceWorker::~DeviceWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  pushed_changed_.notify_one();
  thread_.join();
}

void DeviceWorker::push(DeviceTask task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    ++pushed_;
  }
  pushed_changed_.notify_one();
}

void DeviceWorker::wait() {
  std::unique_lock lock(mutex_);
  const std::uint64_t until = pushed_;
  finished_changed_.wait(lock, [&] { return finished_ >= until; });
}

bool DeviceWorker::idle() {
  const std::lock_guard lock(mutex_);
  return finished_ == pushed_;
}

void DeviceWorker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    pushed_changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    DeviceTask task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    run_(task);
    lock.lock();
    ++finished_;
    finished_changed_.notify_all();
  }
}

}  // namespace lockstep::internal
