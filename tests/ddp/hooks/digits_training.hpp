// Training on the digits with a Reducer that is given its hook: what the convergence tests compare.
#pragma once

#include <functional>
#include <memory>

#include "examples/digits/mlp.hpp"
#include "lockstep/lockstep.hpp"
#include "tests/ddp/digits_data.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep::testing {

/// Makes one rank's hook; null for none.
using HookMaker = std::function<std::shared_ptr<CommunicationHook>()>;

struct TrainingOutcome {
  double accuracy = 0;              ///< On the held-out samples; the mean over the seeds.
  std::uint64_t bytes_on_wire = 0;  ///< Of rank 0's hook, for one seed.
};

inline constexpr std::size_t kEpochs = 8;

/// One training with `seed`; returns the number of held-out samples that are classified rightly.
inline std::size_t train_once(Communicator& communicator, const std::shared_ptr<CommunicationHook>& hook,
                              std::uint64_t seed) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const std::size_t batch = kDigitsBatch / ranks;
  digits::Mlp network(std::array<std::size_t, 4>{digits::kPixels, 64, 64, digits::kClasses}, seed);
  const std::vector<Parameter> parameters = network.parameters();
  Reducer reducer(communicator, parameters,
                  {.bucket_bytes = 64'000, .first_bucket_bytes = 4'000, .hook = hook});
  for (std::size_t i = 0; i < parameters.size(); ++i)
    network.set_gradient(i, static_cast<float*>(reducer.gradient(i)));
  DistributedSampler sampler(digits_data().train.size(), communicator.size(), communicator.rank(), true, seed,
                             true);
  const auto local = std::dynamic_pointer_cast<LocalSgd>(hook);
  std::vector<float> logits_gradient;
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    sampler.set_epoch(epoch);
    const std::vector<std::size_t> indices = sampler.indices();
    const float rate = 0.05f * (1.0f - static_cast<float>(epoch) / kEpochs);
    for (std::size_t first = 0; first + batch <= indices.size(); first += batch) {
      const digits::Dataset samples =
          digits::select(digits_data().train, std::span(indices).subspan(first, batch));
      digits::softmax_cross_entropy(network.forward(samples.images.data(), batch), samples.labels,
                                    logits_gradient);
      network.backward(logits_gradient, [&](std::size_t i) { reducer.mark_ready(i); });
      reducer.wait();
      network.step(rate, 0.9f);
      if (local) local->average_parameters();
    }
  }
  if (local) local->average_parameters(true);
  expect_equal_values(communicator, parameters);
  const digits::Dataset& test = digits_data().test;
  return digits::count_correct(network.forward(test.images.data(), test.size()), test.labels);
}

inline TrainingOutcome train_digits(int ranks, const HookMaker& make) {
  TrainingOutcome outcome;
  on_ranks(ranks, "auto", [&](Communicator& communicator) {
    std::size_t correct = 0;
    for (std::uint64_t seed = 0; seed < kDigitsSeeds; ++seed) {
      const auto hook = make();
      correct += train_once(communicator, hook, seed);
      if (communicator.rank() == 0 && hook) outcome.bytes_on_wire = hook->bytes_on_wire();
    }
    if (communicator.rank() == 0) {
      outcome.accuracy =
          static_cast<double>(correct) / static_cast<double>(kDigitsSeeds * digits_data().test.size());
    }
  });
  return outcome;
}

}  // namespace lockstep::testing
