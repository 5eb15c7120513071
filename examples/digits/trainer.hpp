// One rank's share of the training: its batches, the network, and the Reducer between backward and the
// optimizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "examples/digits/dataset.hpp"
#include "examples/digits/mlp.hpp"
#include "lockstep/lockstep.hpp"

namespace digits {

struct TrainingOptions {
  std::size_t hidden = 512;  ///< Width of each hidden layer.
  std::size_t layers = 3;    ///< Hidden layers.
  std::size_t batch = 64;    ///< Samples a step over all ranks together.
  std::size_t epochs = 12;
  double rate = 0.02;  ///< Learning rate at the start; falls linearly to zero.
  double momentum = 0.9;
  std::uint64_t seed = 1;  ///< Of the weights and of the order of the samples.
};

/// What the options mean: the widths of all layers, the samples of one rank in a step, the steps with a whole
/// batch, and buckets for about a layer each. Throw std::invalid_argument for a batch that cannot be.
std::vector<std::size_t> widths(const TrainingOptions& options);
std::size_t divide_batch(std::size_t batch, int ranks);
std::size_t count_steps(std::size_t batch, std::size_t samples);
lockstep::ReducerOptions bucket_caps(const TrainingOptions& options);

/// Where a step stands in the training, for whoever shows it.
struct Progress {
  std::size_t epoch;
  std::size_t step;  ///< In the epoch.
  double loss;       ///< Of this rank's part of the batch.
};

/// Not thread-safe. `communicator` and `data` must outlive it.
class Trainer {
 public:
  /// Collective. Throws std::invalid_argument for a batch that cannot be dealt evenly, or from the samples.
  Trainer(lockstep::Communicator& communicator, const Dataset& data, const TrainingOptions& options);

  /// One pass over the data. Returns the loss of every step, averaged over the whole batch; equal on all
  /// ranks.
  std::vector<double> run_epoch(std::size_t epoch, const std::function<void(const Progress&)>& show);

  /// Forward, backward and optimizer on these samples; the loss before. Without `synchronise` every rank goes
  /// its own way: only for measurements, with a rate of 0.
  double step(std::span<const std::size_t> samples, double rate, bool synchronise);

  /// Collective: the gradients' all_reduce of one step without the rest of it.
  void communicate();

  /// Collective. Throws std::runtime_error that names the ranks whose parameters differ from rank 0's in any
  /// bit.
  void check_replicas();

  /// Of every bit of this rank's parameters.
  std::uint64_t parameters_hash() const;

  /// Share of the samples that the network classifies rightly.
  double accuracy(const Dataset& data);

  std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  std::size_t rank_batch() const { return rank_batch_; }
  const Mlp& network() const { return network_; }
  const lockstep::Reducer& reducer() const { return reducer_; }

 private:
  lockstep::Communicator& communicator_;
  const Dataset& data_;
  TrainingOptions options_;
  std::size_t rank_batch_;
  lockstep::DistributedSampler sampler_;
  std::size_t steps_per_epoch_;
  Mlp network_;
  std::vector<lockstep::Parameter> parameters_;
  lockstep::Reducer reducer_;
  std::vector<float> logits_gradient_;
};

}  // namespace digits
