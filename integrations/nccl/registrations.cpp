#include "integrations/nccl/registrations.hpp"

#include "integrations/nccl/result.hpp"

namespace lockstep::nccl {

void* Registrations::keep(void* buffer) {
  const std::lock_guard lock(mutex_);
  auto kept = std::make_unique<void*>(buffer);
  void* const handle = kept.get();
  buffers_.emplace(handle, std::move(kept));
  return handle;
}

void* Registrations::add(DeviceCommunicator& ranks, void* buffer, std::size_t bytes) {
  if (buffer == nullptr || bytes == 0) throw invalid_argument("there is nothing to register");
  ranks.register_buffer(buffer, bytes);
  return keep(buffer);
}

ncclWindow_t Registrations::add_window(DeviceCommunicator& ranks, void* buffer, std::size_t bytes,
                                       bool symmetric) {
  if (buffer == nullptr || bytes == 0) throw invalid_argument("there is nothing to register");
  ranks.register_window(buffer, bytes, symmetric);
  return static_cast<ncclWindow_t>(keep(buffer));
}

void Registrations::remove(DeviceCommunicator& ranks, void* handle) {
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(handle);
  if (found == buffers_.end())
    throw invalid_argument("the handle is none of this communicator's registrations");
  void* const buffer = *found->second;
  ranks.deregister(buffer);
  buffers_.erase(found);  // After what may fail: the handle is still good then.
}

}  // namespace lockstep::nccl
