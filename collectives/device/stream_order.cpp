#include "collectives/device/stream_order.hpp"

namespace lockstep::internal {

Status StreamOrder::follow(DeviceStream stream) {
  if (end_ == nullptr) return {};
  const auto number = backend_.stream_number(stream);
  if (!number.ok()) return number.status();
  return number.value() == stream_ ? Status() : backend_.wait_event(stream, end_);
}

Status StreamOrder::note(DeviceStream stream) {
  if (end_ == nullptr) {
    auto event = backend_.create_event();
    if (!event.ok()) return event.status();
    end_ = *event;
  }
  const auto number = backend_.stream_number(stream);
  if (!number.ok()) return number.status();
  stream_ = number.value();
  return backend_.record(end_, stream);
}

bool StreamOrder::has_passed() const {
  if (end_ == nullptr) return true;
  const auto passed = backend_.query(end_);
  return passed.ok() && passed.value();
}

void StreamOrder::destroy() {
  if (end_ != nullptr) static_cast<void>(backend_.destroy_event(end_));
  end_ = nullptr;
}

}  // namespace lockstep::internal
