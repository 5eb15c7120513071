#include "collectives/device/device_worker.hpp"

#include <chrono>
#include <utility>

#include "collectives/device/patience.hpp"
#include "lib/base/threads.hpp"

namespace lockstep::internal {

DeviceWorker::DeviceWorker(Backend& backend, int device, std::function<void(DeviceTask&)> run,
                           std::function<void()> look)
    : backend_(backend),
      device_(device),
      run_(std::move(run)),
      look_(std::move(look)),
      thread_(start_thread([this] { work(); })) {}

DeviceWorker::~DeviceWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  pushed_changed_.notify_one();
  thread_.join();
}

void DeviceWorker::push(std::shared_ptr<DeviceTask> task) {
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

void DeviceWorker::look_when_idle() {
  const std::lock_guard lock(mutex_);
  looks_ = true;
  pushed_changed_.notify_one();
}

void DeviceWorker::await_task(std::unique_lock<std::mutex>& lock) {
  const auto due = [this] { return stopping_ || !tasks_.empty(); };
  pushed_changed_.wait(lock, [&] { return due() || looks_; });
  while (!due() && !pushed_changed_.wait_for(lock, std::chrono::nanoseconds(kLookEvery), due)) {
    lock.unlock();
    look_();
    lock.lock();
  }
}

void DeviceWorker::work() {
  const DeviceScope scope(backend_, device_);
  std::unique_lock lock(mutex_);
  for (;;) {
    await_task(lock);
    if (tasks_.empty()) return;
    const std::shared_ptr<DeviceTask> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    run_(*task);
    lock.lock();
    ++finished_;
    finished_changed_.notify_all();
  }
}

}  // namespace lockstep::internal
