// What was registered on one communicator: handles of ncclCommRegister and windows.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "integrations/nccl/abi.hpp"
#include "lockstep/device.hpp"

namespace lockstep::nccl {

/// Thread-safe. A buffer that is registered twice stays so until the second handle's end.
class Registrations {
 public:
  void* add(DeviceCommunicator& ranks, void* buffer, std::size_t bytes);
  /// Collective and blocking.
  ncclWindow_t add_window(DeviceCommunicator& ranks, void* buffer, std::size_t bytes, bool symmetric);
  /// Throws Refusal for what is not a handle of this table.
  void remove(DeviceCommunicator& ranks, void* handle);

 private:
  void* keep(void* buffer);

  std::mutex mutex_;
  std::map<void*, std::unique_ptr<void*>> buffers_;  ///< By handle.
};

}  // namespace lockstep::nccl
