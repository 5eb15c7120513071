// A stream of a device, for as long as its owner lives.
#pragma once

#include "lockstep/device_runtime.hpp"
#include "lockstep/error.hpp"

namespace examples {

struct OwnStream {
  lockstep::Stream stream = lockstep::device::create_stream();
  OwnStream() = default;
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    try {
      lockstep::device::synchronize(stream);
      lockstep::device::destroy_stream(stream);
    } catch (const lockstep::Error&) {  // The device is lost.
    }
  }
};

}  // namespace examples
