#include "lib/device/host/host_stream.hpp"

#include <atomic>
#include <utility>

#include "lib/base/threads.hpp"

namespace lockstep::internal {

void Milestone::reach() {
  const std::lock_guard lock(mutex_);
  reached_at_ = real_env().now();
  reached_ = true;
  changed_.notify_all();
}

Nanos Milestone::reached_at() {
  const std::lock_guard lock(mutex_);
  return reached_at_;
}

bool Milestone::reached() {
  const std::lock_guard lock(mutex_);
  return reached_;
}

void Milestone::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return reached_; });
}

static std::uint64_t next_stream_number() {
  static std::atomic<std::uint64_t> streams{0};
  return streams.fetch_add(1);
}

HostStream::HostStream(int device) : device_(device), number_(next_stream_number()) {
  start_thread([queue = queue_] { work(queue); }).detach();
}

HostStream::~HostStream() {
  const std::lock_guard lock(queue_->mutex);
  queue_->closed = true;
  queue_->came.notify_one();
}

void HostStream::enqueue(Task task) {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->recorded) return queue_->recorded->push_back(std::move(task));
  queue_->tasks.push_back(std::move(task));
  ++queue_->enqueued;
  queue_->came.notify_one();
}

void HostStream::synchronize() {
  std::unique_lock lock(queue_->mutex);
  const std::uint64_t until = queue_->enqueued;
  queue_->ended.wait(lock, [&] { return queue_->finished >= until; });
}

bool HostStream::synchronize_for(std::chrono::milliseconds limit) {
  std::unique_lock lock(queue_->mutex);
  const std::uint64_t until = queue_->enqueued;
  return queue_->ended.wait_for(lock, limit, [&] { return queue_->finished >= until; });
}

bool HostStream::idle() {
  const std::lock_guard lock(queue_->mutex);
  return queue_->finished == queue_->enqueued;
}

bool HostStream::begin_recording() {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->recorded) return false;
  queue_->recorded.emplace();
  return true;
}

bool HostStream::recording() {
  const std::lock_guard lock(queue_->mutex);
  return queue_->recorded.has_value();
}

std::optional<std::vector<HostStream::Task>> HostStream::end_recording() {
  const std::lock_guard lock(queue_->mutex);
  return std::exchange(queue_->recorded, std::nullopt);
}

void HostStream::work(const std::shared_ptr<Queue>& queue) {
  std::unique_lock lock(queue->mutex);
  for (;;) {
    queue->came.wait(lock, [&] { return queue->closed || !queue->tasks.empty(); });
    if (queue->tasks.empty()) return;
    Task task = std::move(queue->tasks.front());
    queue->tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    ++queue->finished;
    queue->ended.notify_all();
  }
}

void HostEvent::record(HostStream& stream) {
  auto milestone = std::make_shared<Milestone>();
  {
    const std::lock_guard lock(mutex_);
    last_ = milestone;
  }
  stream.enqueue([milestone] { milestone->reach(); });
}

std::shared_ptr<Milestone> HostEvent::last() {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace lockstep::internal
