// The optimizers that come with the library, against their definitions in double.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "lockstep/ddp/optimizer.hpp"

namespace lockstep {
namespace {

/// What one element is made of.
struct Element {
  double value, first = 0, second = 0;
};

/// Five steps of a few elements; the rate changes after two.
void expect_steps_of(Optimizer& optimizer,
                     const std::function<void(Element&, double gradient, int step)>& rule) {
  constexpr std::size_t kCount = 37;
  std::vector<float> values(kCount), gradients(kCount), first(kCount), second(kCount);
  std::vector<Element> expected;
  for (std::size_t i = 0; i < kCount; ++i) {
    values[i] = static_cast<float>(i) - 11.5f;
    expected.push_back({values[i]});
  }
  std::vector<std::span<float>> slots{first, second};
  slots.resize(optimizer.slots().size());
  for (int step = 1; step <= 5; ++step) {
    if (step == 3) optimizer.set_rate(optimizer.rate() / 4);
    for (std::size_t i = 0; i < kCount; ++i) {
      gradients[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(step)) % 5) - 1.5f;
      rule(expected[i], gradients[i], step);
    }
    optimizer.step({static_cast<std::uint64_t>(step), values, gradients, slots});
    for (std::size_t i = 0; i < kCount; ++i)
      ASSERT_NEAR(values[i], expected[i].value, 1e-5) << step << " " << i;
  }
}

TEST(Optimizers, SgdKeepsItsMomentumAndDecays) {
  SgdMomentum optimizer(0.1, 0.8, 0.05);
  expect_steps_of(optimizer, [&](Element& e, double gradient, int) {
    e.first = 0.8 * e.first + (gradient + 0.05 * e.value);
    e.value -= optimizer.rate() * e.first;
  });
}

TEST(Optimizers, AdamWCorrectsItsMomentsAndDecaysBesideThem) {
  AdamW optimizer(0.1, 0.05, 0.8, 0.9, 1e-3);
  expect_steps_of(optimizer, [&](Element& e, double gradient, int step) {
    e.first = 0.8 * e.first + 0.2 * gradient;
    e.second = 0.9 * e.second + 0.1 * gradient * gradient;
    const double mean = e.first / (1 - std::pow(0.8, step)), square = e.second / (1 - std::pow(0.9, step));
    e.value -= optimizer.rate() * 0.05 * e.value;
    e.value -= optimizer.rate() * mean / (std::sqrt(square) + 1e-3);
  });
}

}  // namespace
}  // namespace lockstep
