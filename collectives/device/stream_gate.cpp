#include "collectives/device/stream_gate.hpp"

#include <atomic>

namespace lockstep::internal {

Result<std::unique_ptr<StreamGate>> StreamGate::make(Backend& backend, int device) {
  const DeviceScope scope(backend, device);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  auto word = backend.allocate_pinned(sizeof(std::uint32_t));
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

Status StreamGate::hold(DeviceStream stream, std::uint32_t ticket) {
  auto known = passed_.find(stream);
  if (known == passed_.end()) {
    auto event = backend_.create_event();
    if (!event.ok()) return event.status();
    known = passed_.emplace(stream, *event).first;
  }
  LOCKSTEP_RETURN_IF_ERROR(backend_.wait_value(word_, ticket, stream));
  return backend_.record(known->second, stream);
}

void StreamGate::release(std::uint32_t ticket) {
  std::atomic_ref(*word_).store(ticket, std::memory_order_release);
}

}  // namespace lockstep::internal
