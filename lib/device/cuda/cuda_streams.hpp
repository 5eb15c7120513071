// What the CUDA backend does in the order of streams, whatever the device.
#pragma once

#include "lib/device/backend.hpp"
#include "lib/device/cuda/cuda_driver.hpp"

namespace lockstep::internal {

/// Streams, events, captures and graphs, and what is put on a stream but for jobs, which a device is made
/// ready for first.
class CudaStreams : public Backend {
 public:
  Result<DeviceStream> create_stream(Priority priority) override;
  Status destroy_stream(DeviceStream stream) override;
  Status synchronize(DeviceStream stream) override;
  Result<bool> idle(DeviceStream stream) override;
  Result<std::uint64_t> stream_number(DeviceStream stream) override;
  Result<bool> capturing(DeviceStream stream) override;
  Status begin_capture(DeviceStream stream, CaptureScope scope) override;
  bool heed_captures(bool heeds) noexcept override;
  Result<DeviceGraph> end_capture(DeviceStream stream) override;
  Status replay(DeviceGraph graph, DeviceStream stream) override;
  Status destroy_graph(DeviceGraph graph) override;
  Result<DeviceEvent> create_event() override;
  Result<DeviceEvent> create_timed_event() override;
  Result<double> elapsed_us(DeviceEvent start, DeviceEvent end) override;
  Status destroy_event(DeviceEvent event) override;
  Status record(DeviceEvent event, DeviceStream stream) override;
  Result<bool> query(DeviceEvent event) override;
  Status synchronize_event(DeviceEvent event) override;
  Status wait_event(DeviceStream stream, DeviceEvent event) override;
  Status copy(void* destination, const void* source, std::size_t bytes, DeviceStream stream) override;
  Status fill(void* destination, std::uint8_t value, std::size_t bytes, DeviceStream stream) override;
  Status operate(std::span<const WordOperation> operations, DeviceStream stream) override;
  Status launch(const KernelLaunch& kernel, DeviceStream stream) override;

 protected:
  explicit CudaStreams(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver driver_;
};

}  // namespace lockstep::internal
