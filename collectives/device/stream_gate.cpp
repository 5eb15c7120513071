#include "collectives/device/stream_gate.hpp"

#include <atomic>

#include "collectives/device/patience.hpp"

namespace lockstep::internal {
namespace {

/// From here on events of streams that have passed the word are used again: streams come and go.
constexpr std::size_t kManyStreams = 64;

bool arrives(std::uint32_t* word, Nanos limit) {
  const Nanos start = real_env().now();
  while (std::atomic_ref(*word).load(std::memory_order_acquire) == 0) {
    if (real_env().now() - start > limit) return false;
    sleep_for(kPause);
  }
  return true;
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
  std::uint32_t* const sign = word_ + 1;
  std::atomic_ref(*sign).store(0);
  Status status = backend_.wait_value(word_, 1, *held);
  if (status.ok()) status = backend_.write_value(sign, 1, stream);
  if (!status.ok()) {
    status = status.with_context("streams of this device cannot wait for words (cuStreamBatchMemOp)");
  } else if (!arrives(sign, limit)) {
    status = Status(ErrorCode::not_supported,
                    "a stream of this device does not go on while another one waits: set "
                    "CUDA_DEVICE_MAX_CONNECTIONS to 32 before the process uses the device");
  }
  release(1);
  static_cast<void>(backend_.synchronize(*held));
  static_cast<void>(backend_.destroy_stream(*held));
  release(0);
  return status;
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

}  // namespace lockstep::internal
