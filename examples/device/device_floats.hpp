// Numbers in the memory of a device, for as long as their owner lives.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/device_runtime.hpp"
#include "lockstep/error.hpp"

namespace examples {

struct FreeDevice {
  void operator()(void* memory) const {
    try {
      lockstep::free_device(memory);
    } catch (const lockstep::Error&) {  // The device is lost.
    }
  }
};
using DeviceFloats = std::unique_ptr<float, FreeDevice>;

inline DeviceFloats device_floats(std::size_t count, int device = lockstep::device::selected()) {
  return DeviceFloats(static_cast<float*>(lockstep::allocate_device(count * sizeof(float), device)));
}

}  // namespace examples
