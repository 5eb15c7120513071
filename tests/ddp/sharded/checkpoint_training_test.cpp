// Trainings that go on from a checkpoint.
#include <gtest/gtest.h>

#include "examples/digits/mlp.hpp"
#include "lockstep/ddp/checkpoint.hpp"
#include "lockstep/ddp/sharded_optimizer.hpp"
#include "tests/ddp/digits_data.hpp"
#include "tests/ddp/sharded/checkpoint_world.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::digits_data;
using testing::Directory;
using testing::kDigitsBatch;
using testing::on_ranks;
using testing::thrown_by;

/// Trains on the digits from step `first` to `last`, from and to the checkpoint; returns the parameters'
/// values.
std::vector<float> train(Communicator& communicator, const Directory& directory, std::size_t first,
                         std::size_t last) {
  const std::size_t batch = kDigitsBatch / static_cast<std::size_t>(communicator.size());
  digits::Mlp network(std::array<std::size_t, 3>{digits::kPixels, 32, digits::kClasses}, 1);
  std::vector<Parameter> parameters = network.parameters();
  std::vector<std::vector<float>> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::size_t count = 1;
    for (const std::size_t dimension : parameters[i].shape) count *= dimension;
    parameters[i].gradient = gradients.emplace_back(count).data();
    network.set_gradient(i, gradients.back().data());
  }
  ShardedOptimizer sharded(communicator, parameters, std::make_shared<AdamW>(0.01),
                           {.bucket_bytes = 4'096, .first_bucket_bytes = 1'024});
  if (first > 0) {
    std::vector<TensorSlice> slices = sharded.slices();
    sharded.restored(load_checkpoint(communicator, directory.checkpoint(), slices).step);
  }
  EXPECT_EQ(sharded.steps(), first);
  DistributedSampler sampler(digits_data().train.size(), communicator.size(), communicator.rank(), true, 1,
                             true);
  const std::vector<std::size_t> indices = sampler.indices();
  std::vector<float> logits_gradient;
  for (std::size_t step = first; step < last; ++step) {
    sharded.wait_parameters();
    const auto samples = digits::select(digits_data().train, std::span(indices).subspan(step * batch, batch));
    digits::softmax_cross_entropy(network.forward(samples.images.data(), batch), samples.labels,
                                  logits_gradient);
    network.backward(logits_gradient, [&](std::size_t i) { sharded.mark_ready(i); });
    sharded.wait();
    sharded.clip_gradients(1.0);
    sharded.step();
  }
  sharded.wait_parameters();
  save_checkpoint(communicator, directory.checkpoint(), sharded.slices(), {.step = sharded.steps()});
  std::vector<float> values;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto* value = static_cast<const float*>(parameters[i].value);
    values.insert(values.end(), value, value + gradients[i].size());
  }
  return values;
}

std::vector<float> train_on(int ranks, const Directory& directory, std::size_t first, std::size_t last) {
  std::vector<float> values;
  on_ranks(ranks, "auto", [&](Communicator& communicator) {
    std::vector<float> mine = train(communicator, directory, first, last);
    if (communicator.rank() == 0) values = std::move(mine);
  });
  return values;
}

TEST(Checkpoint, TrainingGoesOnWithAnotherNumberOfRanks) {
  const Directory whole, parts;
  const std::vector<float> expected = train_on(1, whole, 0, 21);
  train_on(2, parts, 0, 7);
  train_on(3, parts, 7, 14);
  const std::vector<float> resumed = train_on(1, parts, 14, 21);
  ASSERT_EQ(resumed.size(), expected.size());
  // Worlds round their averages differently, and Adam divides by what may be small.
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(resumed[i], expected[i], 2e-3) << i;
}

TEST(Checkpoint, TrainingResumedWithTheSameRanksIsEqualBitForBit) {
  const Directory whole, parts;
  const std::vector<float> expected = train_on(2, whole, 0, 12);
  train_on(2, parts, 0, 5);
  EXPECT_EQ(train_on(2, parts, 5, 12), expected);
}

TEST(Checkpoint, AnotherOptimizerIsRefused) {
  const Directory directory;
  train_on(2, directory, 0, 2);
  on_ranks(2, "auto", [&](Communicator& communicator) {
    digits::Mlp network(std::array<std::size_t, 3>{digits::kPixels, 32, digits::kClasses}, 1);
    ShardedOptimizer sharded(communicator, network.parameters(), std::make_shared<SgdMomentum>(0.01),
                             {.stage = ZeroStage::optimizer});
    const Error error =
        thrown_by([&] { load_checkpoint(communicator, directory.checkpoint(), sharded.slices()); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(error.what()).find("layer0.weight#mom"), std::string::npos) << error.what();
  });
}

}  // namespace
}  // namespace lockstep
