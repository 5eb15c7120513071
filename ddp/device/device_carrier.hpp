// DeviceCarrier: brings full buckets to their averages, by what it enqueues on the communication stream.
#pragma once

#include <cstdint>
#include <memory>

#include "lib/device/backend.hpp"
#include "lockstep/ddp/device_reducer.hpp"

namespace lockstep::internal {

/// What every carrier works with.
struct DeviceRoute {
  Backend& backend;
  DeviceCommunicator& communicator;
  DeviceStream stream;  ///< Of the reducer's own; all that carriers enqueue goes there.

  int ranks() const { return communicator.size(); }
  float weight(bool average) const { return average ? 1.0f / static_cast<float>(ranks()) : 1.0f; }
};

class DeviceCarrier {
 public:
  virtual ~DeviceCarrier() = default;
  /// Enqueues all that becomes of bucket `index`, which lies at `data`: the average of the ranks', or the
  /// sum. In plan order. Throws Error.
  virtual void start(std::size_t index, const BucketPlan::Bucket& bucket, std::byte* data, bool average) = 0;
  std::uint64_t bytes_on_wire() const { return bytes_; }

 protected:
  void count_bytes(std::size_t bytes) { bytes_ += bytes; }

 private:
  std::uint64_t bytes_ = 0;
};

/// All_reduce in the gradients' own types.
std::unique_ptr<DeviceCarrier> make_plain_device_carrier(const DeviceRoute& route);
/// f32 rounded to `type`, bf16 or f16, and summed in it.
std::unique_ptr<DeviceCarrier> make_half_device_carrier(const DeviceRoute& route, const BucketPlan& plan,
                                                        DataType type);
/// f32 as codes of one byte with a scale a block.
std::unique_ptr<DeviceCarrier> make_quantised_device_carrier(const DeviceRoute& route, const BucketPlan& plan,
                                                             DataType type, std::size_t block);

}  // namespace lockstep::internal
