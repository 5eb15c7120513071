// One rank's copy of the network, and the three ways to train it on several ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "examples/digits/dataset.hpp"
#include "examples/digits/mlp.hpp"
#include "lockstep/lockstep.hpp"

namespace data_parallel {

struct TrainingOptions {
  std::size_t hidden = 512;  ///< Width of each of two hidden layers.
  float rate = 0.02f;
  float momentum = 0.9f;
  std::uint64_t seed = 1;
};

/// A network whose gradients lie in one registered block, so that they travel in one piece.
class Replica {
 public:
  explicit Replica(const TrainingOptions& options);

  /// Forward and backward over these samples; their mean loss.
  double compute(std::span<const float> images, std::span<const int> labels);
  /// Collective: rank 0's parameters everywhere.
  void replicate(lockstep::Communicator& communicator);
  /// Collective: the average of all gradients at rank 0, which steps.
  void step_at_root(lockstep::Communicator& communicator);

 private:
  struct Free {
    void operator()(float* block) const noexcept { lockstep::free(block); }
  };

  TrainingOptions options_;
  digits::Mlp network_;
  std::vector<lockstep::Parameter> parameters_;
  std::unique_ptr<float, Free> gradients_;
  std::vector<float> logits_gradient_;
};

/// A way to train. Every rank has one and calls step() for the same batch, of which `shares[r]` are the
/// samples of rank r. Gives the mean loss of the batch at rank 0, anything elsewhere.
class Form {
 public:
  using Shares = std::span<const std::vector<std::size_t>>;
  virtual ~Form() = default;
  virtual double step(Shares shares) = 0;
};

/// Every rank keeps its replica and steps it; the gradients are averaged while backward runs.
std::unique_ptr<Form> make_distributed(lockstep::Communicator& communicator, const digits::Dataset& data,
                                       const TrainingOptions& options);
/// Rank 0 alone steps: gradients are reduced to it, parameters are broadcast from it.
std::unique_ptr<Form> make_parameter_server(lockstep::Communicator& communicator, const digits::Dataset& data,
                                            const TrainingOptions& options);
/// Rank 0 alone has the data, too: it scatters the batch and replicates its network for every step, and
/// gathers the losses. Not the logits: a loss is one number a rank, and computed where the logits are.
std::unique_ptr<Form> make_scattering(lockstep::Communicator& communicator, const digits::Dataset& data,
                                      const TrainingOptions& options);

}  // namespace data_parallel
