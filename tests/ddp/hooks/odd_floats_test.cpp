// A rank whose thread flushes subnormals and rounds toward zero gets the gradients of all others, to the bit.
#include "tests/support/odd_floats.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>

#include "lockstep/ddp.hpp"
#include "lockstep/ddp/hooks.hpp"
#include "tests/ddp/hooks/every_hook.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep {
namespace {

constexpr int kRanksInOddCompany = 3;
constexpr std::size_t kOddSteps = 12;  // PowerSGD compresses from the tenth.

/// The gradients of the last step; every fourth is subnormal or nearly.
std::vector<float> last_gradients(Communicator& communicator, std::string_view hook) {
  const std::vector<std::size_t> shape{24, 50};
  std::vector<float> values(shape[0] * shape[1]);
  const std::vector<Parameter> list{{"matrix", DataType::f32, shape, values.data(), nullptr}};
  Reducer reducer(communicator, list, {.hook = hook_by_name(hook)});
  std::mt19937 random(static_cast<unsigned>(communicator.rank()));
  std::uniform_real_distribution<float> number(-1, 1);
  auto* gradient = static_cast<float*>(reducer.gradient(0));
  for (std::size_t step = 0; step < kOddSteps; ++step) {
    for (std::size_t i = 0; i < values.size(); ++i) gradient[i] = number(random) * (i % 4 == 0 ? 2e-38f : 1);
    reducer.mark_ready(0);
    reducer.wait();
  }
  return {gradient, gradient + values.size()};
}

TEST(OddFloats, OfOneRankChangeNoHooksGradients) {
  std::vector<std::string_view> hooks = testing::every_hook();
  hooks.push_back("none");
  for (const std::string_view hook : hooks) {
    std::vector<std::vector<float>> results(kRanksInOddCompany);
    testing::on_ranks(kRanksInOddCompany, "tcp", [&](Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      std::optional<testing::OddFloats> odd;
      if (rank == 1) odd.emplace();
      results[rank] = last_gradients(communicator, hook);
    });
    for (const std::vector<float>& other : results) {
      ASSERT_EQ(other.size(), results[0].size());
      EXPECT_EQ(std::memcmp(other.data(), results[0].data(), other.size() * sizeof(float)), 0) << hook;
    }
  }
}

}  // namespace
}  // namespace lockstep
