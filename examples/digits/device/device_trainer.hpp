// One rank's share of the training on a device: the epochs of trainer.hpp, with everything enqueued and
// nothing awaited before the end of an epoch.
#pragma once

#include <vector>

#include "examples/device/own_stream.hpp"
#include "examples/digits/device/device_mlp.hpp"
#include "examples/digits/trainer.hpp"
#include "lockstep/ddp/device_reducer.hpp"

namespace digits {

/// Not thread-safe. `communicator`, `device` and `data` must outlive it.
class DeviceTrainer {
 public:
  /// Collective. Throws std::invalid_argument when the batch cannot be dealt evenly.
  DeviceTrainer(lockstep::Communicator& communicator, lockstep::DeviceCommunicator& device,
                const Dataset& data, const TrainingOptions& options, lockstep::DeviceCompression compression);

  /// As Trainer's.
  std::vector<double> run_epoch(std::size_t epoch);
  void check_replicas();
  double accuracy(const Dataset& data);

 private:
  void step(const float* images, const int* labels, float* losses, double rate);

  lockstep::Communicator& communicator_;
  const Dataset& data_;
  const TrainingOptions options_;
  const std::size_t rank_batch_;
  const int device_;
  lockstep::DistributedSampler sampler_;
  const std::size_t steps_per_epoch_;
  examples::OwnStream compute_stream_;
  const std::unique_ptr<Compute> compute_;
  Mlp start_;
  DeviceMlp network_;
  lockstep::DeviceReducer reducer_;
  DeviceFloats images_, labels_, losses_;  ///< Of an epoch; labels are ints of the same size.
};

}  // namespace digits
