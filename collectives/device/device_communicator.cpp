// The public face of DeviceCommunicator but for its collectives.
#include "collectives/device/device_core.hpp"
#include "collectives/forked_child.hpp"
#include "lib/net/fd.hpp"

namespace lockstep {

using internal::DeviceCore;

std::string_view name_of(DeviceMode mode) noexcept {
  switch (mode) {
    case DeviceMode::host_sync:
      return "host_sync";
    case DeviceMode::stream_sync:
      return "stream_sync";
    case DeviceMode::device_sync:
      return "device_sync";
  }
  return "unknown";
}

DeviceCommunicator::DeviceCommunicator(Communicator& communicator, int device, const DeviceOptions& options) {
  auto core = DeviceCore::make(communicator.core(), internal::device_backend(), device, options);
  core.status().throw_if_error();
  core_ = std::move(*core);
}
DeviceCommunicator::DeviceCommunicator(std::shared_ptr<DeviceCore> core) noexcept : core_(std::move(core)) {}
DeviceCommunicator::DeviceCommunicator(DeviceCommunicator&&) noexcept = default;
DeviceCommunicator& DeviceCommunicator::operator=(DeviceCommunicator&&) noexcept = default;
/// A forked child lacks the thread that would have to end.
DeviceCommunicator::~DeviceCommunicator() {
  if (internal::in_forked_child()) internal::leave_to_parent(std::move(core_));
}

int DeviceCommunicator::rank() const noexcept { return core_->engine().group().rank; }
int DeviceCommunicator::size() const noexcept { return core_->engine().group().size(); }
int DeviceCommunicator::device() const noexcept { return core_->device(); }
DeviceMode DeviceCommunicator::mode() const noexcept { return core_->mode(); }
bool DeviceCommunicator::takes_turns() const noexcept { return core_->takes_turns(); }
std::string DeviceCommunicator::describe() const { return core_->describe(); }

void DeviceCommunicator::register_buffer(void* pointer, std::size_t bytes) {
  core_->register_buffer(pointer, bytes).throw_if_error();
}
void DeviceCommunicator::register_window(void* pointer, std::size_t bytes, bool same_places) {
  core_->register_window(pointer, bytes, same_places).throw_if_error();
}
void DeviceCommunicator::deregister(void* pointer) { core_->deregister(pointer).throw_if_error(); }
bool DeviceCommunicator::is_registered(const void* pointer, std::size_t bytes) const noexcept {
  return core_->is_registered(pointer, bytes);
}

void DeviceCommunicator::wait() {
  internal::refuse_in_forked_child();
  core_->wait().throw_if_error();
}

ErrorCode DeviceCommunicator::state() const noexcept {
  return internal::in_forked_child() ? ErrorCode::not_supported : core_->state().code();
}

std::string DeviceCommunicator::error_text() const {
  internal::refuse_in_forked_child();
  return core_->state().message();
}

void DeviceCommunicator::abort(std::string_view reason) {
  internal::refuse_in_forked_child();
  core_->abort(reason);
}

void DeviceCommunicator::finalize() {
  internal::refuse_in_forked_child();
  core_->finalize().throw_if_error();
}

}  // namespace lockstep
