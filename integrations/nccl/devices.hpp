// Devices, with NCCL's code for machines that have none.
#pragma once

#include "integrations/nccl/result.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::nccl {

/// `ask()`; where there is no device, ncclUnhandledCudaError with lockstep's text.
template <typename Ask>
int of_devices(Ask ask) {
  try {
    return ask();
  } catch (const Error& error) {
    throw Refusal(ncclUnhandledCudaError, error.what());
  }
}

/// The device on which the calling thread works.
inline int current_device() { return of_devices(device::selected); }
inline int device_count() { return of_devices(device::count); }

}  // namespace lockstep::nccl
