// DeviceWorker: the thread that runs the operations of one DeviceCommunicator, in the order of the calls.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/device/device_task.hpp"

namespace lockstep::internal {

class DeviceWorker {
 public:
  /// `run` is called for one task after the other, on the worker's thread, which works on `device`; `look`,
  /// when that was asked for, from time to time while there are none. `backend` outlives it.
  DeviceWorker(Backend& backend, int device, std::function<void(DeviceTask&)> run,
               std::function<void()> look);
  /// What was pushed still runs.
  ~DeviceWorker();
  DeviceWorker(const DeviceWorker&) = delete;
  DeviceWorker& operator=(const DeviceWorker&) = delete;

  void push(std::shared_ptr<DeviceTask> task);
  /// Blocks until everything pushed so far has run.
  void wait();
  bool idle();
  /// From now on.
  void look_when_idle();

 private:
  void work();
  void await_task(std::unique_lock<std::mutex>& lock);

  Backend& backend_;
  const int device_;
  const std::function<void(DeviceTask&)> run_;
  const std::function<void()> look_;
  std::mutex mutex_;
  std::condition_variable pushed_changed_, finished_changed_;
  std::deque<std::shared_ptr<DeviceTask>> tasks_;
  std::uint64_t pushed_ = 0, finished_ = 0;
  bool stopping_ = false, looks_ = false;
  std::thread thread_;  // Last: it uses the members above.
};

}  // namespace lockstep::internal
