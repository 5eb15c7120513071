// examples/gpt: its gradients against finite differences, its optimizer, and that it learns.
#include <gtest/gtest.h>

#include <cmath>

#include "examples/gpt/adamw.hpp"
#include "examples/gpt/model.hpp"
#include "examples/gpt/text.hpp"

namespace gpt {
namespace {

constexpr Config kSmall{
    .vocabulary = 7, .length = 5, .width = 12, .heads = 3, .blocks = 2, .deviation = 0.4f};

Batch random_batch(std::size_t sequences, Random& random) {
  Batch batch;
  for (std::size_t i = 0; i < sequences * kSmall.length; ++i) {
    batch.characters.push_back(static_cast<int>(random.below(kSmall.vocabulary)));
    batch.targets.push_back(static_cast<int>(random.below(kSmall.vocabulary)));
  }
  return batch;
}

void move(Floats& values, float step, const Floats& direction) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
}

/// Slope of the loss when the tensor moves along `direction`: central difference, error of second order.
double slope(Model& model, const Batch& batch, Tensor& tensor, const Floats& direction) {
  constexpr float kStep = 4e-3f;  // Balances curvature against the rounding of f32.
  const Floats before = tensor.value;
  move(tensor.value, kStep, direction);
  const double above = model.loss(batch);
  tensor.value = before;
  move(tensor.value, -kStep, direction);
  const double below = model.loss(batch);
  tensor.value = before;
  return (above - below) / (2.0 * kStep);
}

// A random direction meets every element, so nothing that is missing or too much can hide in one.
TEST(Gpt, GradientsAreThoseOfFiniteDifferences) {
  Random random(3);
  Model model(kSmall, 5);
  const Batch batch = random_batch(3, random);
  for (Tensor* tensor :
       model.tensors()) {  // No gradient is special at 0 and 1, where biases and norms start.
    Floats noise(tensor->value.size());
    random.fill(noise, 0.2f);
    move(tensor->value, 1.0f, noise);
  }
  model.loss(batch);
  model.backward([](std::size_t) {});
  for (Tensor* tensor : model.tensors()) {
    const Floats gradient = tensor->gradient;
    double norm = 0;
    for (const float g : gradient) norm += double{g} * g;
    norm = std::sqrt(norm);
    for (int trial = 0; trial < 4; ++trial) {
      Floats direction(gradient.size());
      random.fill(direction, 1.0f);
      double expected = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) expected += double{gradient[i]} * direction[i];
      EXPECT_NEAR(slope(model, batch, *tensor, direction), expected, 0.01 * norm + 1e-3) << tensor->name;
    }
  }
}

TEST(Gpt, LaterCharactersDoNotChangeEarlierLogits) {
  Random random(4);
  Model model(kSmall, 6);
  Batch batch = random_batch(1, random);
  const Floats before = model.forward(batch.characters);
  batch.characters.back() = (batch.characters.back() + 1) % static_cast<int>(kSmall.vocabulary);
  const Floats& after = model.forward(batch.characters);
  const std::size_t last = (kSmall.length - 1) * kSmall.vocabulary;
  for (std::size_t i = 0; i < last; ++i) EXPECT_EQ(before[i], after[i]) << i;
  EXPECT_NE(before[last], after[last]);
}

TEST(Gpt, AdamWMovesByTheRateAndDecaysMatricesOnly) {
  Tensor matrix("matrix", {1, 2}), bias("bias", {2});
  matrix.value = bias.value = {1.0f, -1.0f};
  matrix.gradient = bias.gradient = {0.5f, -20.0f};
  AdamW optimizer({&matrix, &bias}, {.rate = 0.1f, .decay = 0.2f});
  optimizer.step();
  // The first step is the sign of the gradient, whatever its size.
  EXPECT_NEAR(bias.value[0], 0.9f, 1e-6f);
  EXPECT_NEAR(bias.value[1], -0.9f, 1e-6f);
  EXPECT_NEAR(matrix.value[0], 0.98f - 0.1f, 1e-6f);
  EXPECT_NEAR(matrix.value[1], -0.98f + 0.1f, 1e-6f);
}

TEST(Gpt, TextsAndBatches) {
  const std::string counting = write_counting(2);
  EXPECT_NE(counting.find("after twelve comes thirteen. "), std::string::npos);
  EXPECT_NE(counting.find("before one comes zero. "), std::string::npos);
  EXPECT_EQ(std::count(counting.begin(), counting.end(), '.'), 2 * 40);
  const Text text("abcab");
  EXPECT_EQ(text.vocabulary(), 3u);
  const std::size_t starts[] = {1, 0};
  const Batch batch = text.cut(starts, 3);
  EXPECT_EQ(batch.characters, (std::vector<int>{1, 2, 0, 0, 1, 2}));
  EXPECT_EQ(batch.targets, (std::vector<int>{2, 0, 1, 1, 2, 0}));
  EXPECT_THROW(text.encode("d"), std::invalid_argument);
}

TEST(Gpt, LearnsASentenceByHeart) {
  const Text text("one plus one is two. one plus one is two. ");
  const Config config{.vocabulary = text.vocabulary(), .length = 20, .width = 16, .heads = 2, .blocks = 1};
  Model model(config, 1);
  AdamW optimizer(model.tensors(), {.rate = 1e-2f});
  Random random(1);
  const double first =
      model.loss(text.cut(draw_starts(4, text.size(), config.length, random), config.length));
  EXPECT_NEAR(first, std::log(static_cast<double>(text.vocabulary())), 0.5);
  for (int step = 0; step < 150; ++step) {
    model.loss(text.cut(draw_starts(4, text.size(), config.length, random), config.length));
    model.backward([](std::size_t) {});
    optimizer.step();
  }
  EXPECT_EQ(complete(model, text, "one plus", config.length), "one plus one is two.");
}

}  // namespace
}  // namespace gpt
