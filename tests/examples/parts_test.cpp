// The parts of examples/digits: matrix product, gradients, data.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "examples/digits/dataset.hpp"
#include "examples/digits/mlp.hpp"
#include "examples/matrix/matrix.hpp"
#include "tests/support/temporary_directory.hpp"

namespace digits {
using examples::MatrixView;
using examples::multiply_add;
using examples::row_major;
using examples::transposed;

namespace {

std::vector<float> random_floats(std::size_t n, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(n);
  for (float& v : values) v = uniform(random);
  return values;
}

TEST(Matrix, MultipliesAnyShapeAndOrientation) {
  std::mt19937 random(1);
  for (const std::size_t rows : {1u, 3u, 4u, 9u}) {
    for (const std::size_t depth : {1u, 7u, 256u, 300u}) {
      for (const std::size_t columns : {1u, 8u, 21u}) {
        const auto a = random_floats(rows * depth, random);
        const auto b = random_floats(depth * columns, random);
        const MatrixView plain = row_major(a.data(), rows, depth);
        const MatrixView turned = transposed(row_major(b.data(), columns, depth));
        auto c = random_floats(rows * columns, random);
        auto expected = c;
        for (std::size_t i = 0; i < rows; ++i) {
          for (std::size_t j = 0; j < columns; ++j) {
            double sum = c[i * columns + j];
            for (std::size_t k = 0; k < depth; ++k) sum += double{plain.at(i, k)} * turned.at(k, j);
            expected[i * columns + j] = static_cast<float>(sum);
          }
        }
        multiply_add(plain, turned, c.data());
        for (std::size_t i = 0; i < c.size(); ++i) ASSERT_NEAR(c[i], expected[i], 1e-4);
      }
    }
  }
}

TEST(Matrix, ARowDoesNotDependOnTheRowsBesideIt) {
  std::mt19937 random(2);
  constexpr std::size_t kRows = 6, kDepth = 70, kColumns = 19;
  const auto a = random_floats(kRows * kDepth, random);
  const auto b = random_floats(kDepth * kColumns, random);
  std::vector<float> together(kRows * kColumns), alone(kColumns);
  multiply_add(row_major(a.data(), kRows, kDepth), row_major(b.data(), kDepth, kColumns), together.data());
  multiply_add(row_major(a.data() + 5 * kDepth, 1, kDepth), row_major(b.data(), kDepth, kColumns),
               alone.data());
  for (std::size_t j = 0; j < kColumns; ++j) EXPECT_EQ(alone[j], together[5 * kColumns + j]);
}

/// Every gradient against the slope of the loss between two points beside the parameter.
TEST(Mlp, GradientsAreTheSlopesOfTheLoss) {
  std::mt19937 random(3);
  const std::vector<std::size_t> widths{5, 7, 6, 4};
  Mlp network(widths, 11);
  auto parameters = network.parameters();
  std::vector<std::vector<float>> gradients;
  for (const auto& p : parameters) {
    gradients.emplace_back(
        std::accumulate(p.shape.begin(), p.shape.end(), std::size_t{1}, std::multiplies<>()));
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) network.set_gradient(i, gradients[i].data());

  const std::vector<int> labels{0, 3, 1};
  const auto inputs = random_floats(labels.size() * widths.front(), random);
  std::vector<float> logits_gradient, ignored;
  softmax_cross_entropy(network.forward(inputs.data(), labels.size()), labels, logits_gradient);
  std::vector<std::size_t> order;
  network.backward(logits_gradient, [&](std::size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::size_t>{5, 4, 3, 2, 1, 0}))
      << "from the last parameter to the first, each once";

  constexpr float kStep = 1e-2f;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto* values = static_cast<float*>(parameters[i].value);
    for (std::size_t e = 0; e < gradients[i].size(); ++e) {
      const float value = values[e];
      values[e] = value + kStep;
      const double above =
          softmax_cross_entropy(network.forward(inputs.data(), labels.size()), labels, ignored);
      values[e] = value - kStep;
      const double below =
          softmax_cross_entropy(network.forward(inputs.data(), labels.size()), labels, ignored);
      values[e] = value;
      EXPECT_NEAR(gradients[i][e], (above - below) / (2 * kStep), 5e-3)
          << parameters[i].name << ", element " << e;
    }
  }
}

TEST(Mlp, StartsEquallyFromOneSeed) {
  const std::vector<std::size_t> widths{4, 3, 2};
  Mlp a(widths, 5), b(widths, 5), other(widths, 6);
  const auto* first = static_cast<float*>(a.parameters()[0].value);
  EXPECT_EQ(std::vector<float>(first, first + 12),
            std::vector<float>(static_cast<float*>(b.parameters()[0].value),
                               static_cast<float*>(b.parameters()[0].value) + 12));
  EXPECT_NE(first[0], static_cast<float*>(other.parameters()[0].value)[0]);
}

TEST(Loss, SurvivesLargeLogits) {
  std::vector<float> gradient;
  const std::vector<float> logits{1000.0f, 0.0f, -1000.0f};
  const std::vector<int> right{0}, wrong{2};
  EXPECT_NEAR(softmax_cross_entropy(logits, right, gradient), 0.0, 1e-6);
  EXPECT_NEAR(softmax_cross_entropy(logits, wrong, gradient), 2000.0, 1e-3);
  EXPECT_EQ(gradient, (std::vector<float>{1.0f, 0.0f, -1.0f}));
  EXPECT_EQ(count_correct(logits, right), 1u);
  EXPECT_EQ(count_correct(logits, wrong), 0u);
}

TEST(Dataset, HoldsOutEveryFifthDigit) {
  const Split split = load_digits(DIGITS_DATA);
  EXPECT_EQ(split.train.size(), 1438u);
  EXPECT_EQ(split.test.size(), 359u);
  EXPECT_EQ(split.train.images.size(), split.train.size() * kPixels);
  EXPECT_EQ(split.train.labels[0], 0);
  EXPECT_EQ(split.train.labels[3], 3);
  EXPECT_EQ(split.test.labels[0], 4);  // The file begins 0, 1, 2, ...: the fifth is a four.
  EXPECT_EQ(split.train.labels[4], 5);
  EXPECT_FLOAT_EQ(split.train.images[2], 5.0f / 16.0f);
}

void expect_refused(const std::string& contents, const std::string& text) {
  const lockstep::internal::TemporaryDirectory directory;
  try {
    load_digits(directory.write("digits.csv", contents));
    ADD_FAILURE() << "accepted: " << contents;
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(Dataset, NamesTheLineThatIsWrong) {
  std::string good;
  for (std::size_t i = 0; i < kPixels; ++i) good += "1,";
  expect_refused(good + "3\n" + good + "\n", "line 2");
  expect_refused(good + "10\n", "line 1");
  expect_refused(good + "3,4\n", "line 1");
  expect_refused("x" + good.substr(1) + "3\n", "line 1");
  EXPECT_THROW(load_digits("/nowhere/digits.csv"), std::runtime_error);
}

TEST(Dataset, IsNoEmptyFileAndNoDirectory) {
  expect_refused("", "has no samples; pass --data");
  const lockstep::internal::TemporaryDirectory directory;
  EXPECT_THROW(load_digits(directory.path()), std::runtime_error);
}

}  // namespace
}  // namespace digits
