#include "collectives/device/stream_gate.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "collectives/device/patience.hpp"
#include "lib/base/threads.hpp"

namespace lockstep::internal {
namespace {

/// From here on events of streams that have passed the word are used again: streams come and go.
constexpr std::size_t kManyStreams = 64;

/// Stores 1 to a word, for which a stream waits, when a limit has passed. Its thread makes no call to the
/// driver: another thread's, such as cudaFree, may wait there for that stream and keep all others waiting.
class LateRelease {
 public:
  LateRelease(std::uint32_t* word, Nanos limit)
      : thread_(start_thread([this, word, limit] { work(word, std::chrono::nanoseconds(limit)); })) {}
  ~LateRelease() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  LateRelease(const LateRelease&) = delete;
  LateRelease& operator=(const LateRelease&) = delete;

  bool happened() const { return happened_.load(); }

 private:
  void work(std::uint32_t* word, std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return ended_; })) return;
    happened_.store(true);
    std::atomic_ref(*word).store(1);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  std::atomic<bool> happened_{false};
  std::thread thread_;  // Last: it uses the members above.
};

bool arrives(std::uint32_t* word, const LateRelease& release) {
  while (std::atomic_ref(*word).load(std::memory_order_acquire) == 0 && !release.happened())
    sleep_for(kPause);
  return !release.happened();
}

}  // namespace

Result<std::unique_ptr<StreamGate>> StreamGate::make(Backend& backend, int device) {
  const DeviceScope scope(backend, device);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  auto word = backend.allocate_pinned(2 * sizeof(std::uint32_t));
  if (!word.ok()) return word.status();
  return std::unique_ptr<StreamGate>(new StreamGate(backend, device, static_cast<std::uint32_t*>(*word)));
}

StreamGate::~StreamGate() {
  const DeviceScope scope(backend_, device_);
  for (const auto& [stream, event] : passed_) {
    static_cast<void>(backend_.synchronize_event(event));
    static_cast<void>(backend_.destroy_event(event));
  }
  static_cast<void>(backend_.free_pinned(word_));
}

Status StreamGate::probe(DeviceStream stream, Nanos limit) {
  auto held = backend_.create_stream();
  if (!held.ok()) return held.status();
  const Status status = probe_beside(*held, stream, limit);
  release(1);
  static_cast<void>(backend_.synchronize(*held));
  static_cast<void>(backend_.destroy_stream(*held));
  release(0);
  return status;
}

Status StreamGate::probe_beside(DeviceStream held, DeviceStream stream, Nanos limit) {
  std::uint32_t* const sign = word_ + 1;
  std::atomic_ref(*sign).store(0);
  const LateRelease late(word_, limit);
  Status status = backend_.wait_value(word_, 1, held);
  if (status.ok()) status = backend_.write_value(sign, 1, stream);
  if (!status.ok())
    return status.with_context("streams of this device cannot wait for words (cuStreamBatchMemOp)");
  if (late.happened())
    return Status(ErrorCode::not_supported,
                  "another thread's call kept the driver while a stream was tried: free no memory of this "
                  "device (cudaFree) while a communicator is made");
  if (arrives(sign, late)) return {};
  return Status(ErrorCode::not_supported,
                "a stream of this device does not go on while another one waits: set "
                "CUDA_DEVICE_MAX_CONNECTIONS to 32 before the process uses the device");
}

Status StreamGate::hold(DeviceStream stream, std::uint32_t ticket) {
  const auto number = backend_.stream_number(stream);
  if (!number.ok()) return number.status();
  auto known = passed_.find(number.value());
  if (known == passed_.end()) {
    auto event = event_of_new_stream();
    if (!event.ok()) return event.status();
    known = passed_.emplace(number.value(), *event).first;
  }
  LOCKSTEP_RETURN_IF_ERROR(backend_.wait_value(word_, ticket, stream));
  return backend_.record(known->second, stream);
}

Result<DeviceEvent> StreamGate::event_of_new_stream() {
  const BesideCaptures beside(backend_);
  for (auto one = passed_.begin(); passed_.size() >= kManyStreams && one != passed_.end(); ++one) {
    const auto passed = backend_.query(one->second);
    if (!passed.ok() || !passed.value()) continue;
    const DeviceEvent event = one->second;
    passed_.erase(one);
    return event;
  }
  return backend_.create_event();
}

void StreamGate::release(std::uint32_t ticket) {
  std::atomic_ref(*word_).store(ticket, std::memory_order_release);
}

bool StreamGate::has_released_all() const {
  return std::atomic_ref(*word_).load(std::memory_order_acquire) == given_;
}

}  // namespace lockstep::internal
