#include "collectives/device/device_core.hpp"

#include <utility>

#include "collectives/device/shared_streams.hpp"

namespace lockstep::internal {

DeviceCore::DeviceCore(std::unique_ptr<DeviceParts> parts) : parts_(std::move(parts)) {}

Result<std::shared_ptr<DeviceCore>> DeviceCore::make(CommunicatorCore& communicator, Result<Backend*> backend,
                                                     int device, const DeviceOptions& options) {
  auto parts = DeviceParts::make(communicator, std::move(backend), device, options);
  if (!parts.ok()) return parts.status();
  return std::shared_ptr<DeviceCore>(new DeviceCore(std::move(*parts)));
}

DeviceCore::~DeviceCore() {
  const BesideCaptures beside(parts_->backend);
  const DeviceScope scope(parts_->backend, parts_->device);  // The thread may be any.
  end_.let_graphs_pass();
  const EngineGroup& group = parts_->groups.control->engine().group();
  SharedStreams::instance().forget({group.id, group.rank});
  DeviceWorker& worker = worker_.worker();
  if (have_streams_passed()) worker.wait();
  if (worker.idle()) return;
  // A failure may be known here before the peers were told.
  if (const Status why = end_.failure(); !why.ok())
    parts_->groups.revoke(why);
  else
    abort("its DeviceCommunicator was destroyed");
}

/// Every operation so far: the caller may know that, and the worker be about to see it.
bool DeviceCore::have_streams_passed() const {
  return parts_->gate->has_released_all() && parts_->order.has_passed();
}

Status DeviceCore::wait() {
  worker_.worker().wait();
  return state();
}

Status DeviceCore::state() {
  worker_.let_look();
  return end_.known_state();
}

void DeviceCore::abort(std::string_view reason) {
  const int self = parts_->groups.control->rank();
  const Status why(ErrorCode::aborted, engine().who(self) + " aborted: " + std::string(reason), self);
  parts_->groups.revoke(why);
}

Status DeviceCore::finalize() {
  {
    const auto order = caller_.hold_order();
    if (end_.is_finished()) return {};
  }
  LOCKSTEP_RETURN_IF_ERROR(wait());
  Status status = parts_->groups.control->finalize();
  const auto order = caller_.hold_order();
  end_.finish();
  return status;
}

}  // namespace lockstep::internal
