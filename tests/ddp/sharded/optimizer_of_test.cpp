// ShardedOptions::optimizer_of: parameters with an optimizer of their own.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ddp/sharded/arrangements.hpp"
#include "tests/ddp/sharded/single_process.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::Arrangement;
using testing::floats;
using testing::kArrangements;
using testing::on_ranks;
using testing::Rule;
using testing::run_step;
using testing::SingleProcess;
using testing::small_buckets;
using testing::thrown_by;

/// Every third of them by another rule, which the first of a bucket or of a shard may be, or not.
TEST(OptimizerOf, EachParameterStepsIt) {
  const Rule usual = std::make_shared<AdamW>(0.01, 0.1), other = std::make_shared<AdamW>(0.002, 0.0);
  for (const Arrangement& arrangement : kArrangements) {
    for (const int ranks : {1, 2, 4}) {
      on_ranks(ranks, "auto", [&](Communicator& communicator) {
        Model model(20, 5);
        const std::vector<Parameter> list = model.list(arrangement.stage);
        std::vector<Rule> rules;
        for (std::size_t i = 0; i < list.size(); ++i) rules.push_back(i % 3 == 0 ? other : usual);
        ShardedOptions options = small_buckets(arrangement);
        options.optimizer_of = [&](const Parameter& asked) -> Rule {
          const auto is_it = [&](const Parameter& one) { return one.name == asked.name; };
          const auto i = std::find_if(list.begin(), list.end(), is_it) - list.begin();
          return i % 3 == 0 ? other : nullptr;
        };
        SingleProcess single(model, rules);
        ShardedOptimizer sharded(communicator, list, usual, options);
        for (std::size_t step = 0; step < 4; ++step) {
          run_step(sharded, model, communicator.rank(), step);
          sharded.step();
          single.step(ranks, step);
        }
        sharded.wait_parameters();
        for (std::size_t i = 0; i < model.tensors(); ++i) {
          for (std::size_t e = 0; e < model.elements(i); ++e)
            ASSERT_EQ(floats(sharded.value(i))[e], single.values(i)[e]) << "tensor " << i << " of " << ranks;
        }
      });
    }
  }
}

TEST(OptimizerOf, WhatDoesNotGoTogetherIsRefused) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(8, 2);
    const auto usual = std::make_shared<AdamW>(0.01);
    const auto refusal = [&](std::shared_ptr<const Optimizer> of_third) {
      ShardedOptions options = small_buckets(kArrangements[0]);
      options.optimizer_of = [&](const Parameter& parameter) {
        return parameter.name == "tensor3" ? of_third : nullptr;
      };
      return thrown_by(
          [&] { ShardedOptimizer(communicator, model.list(ZeroStage::optimizer), usual, options); });
    };
    const bool culprit = communicator.rank() == 2;
    const Error differs = refusal(culprit ? std::make_shared<AdamW>(0.25) : nullptr);
    EXPECT_EQ(differs.code(), ErrorCode::mismatch);
    EXPECT_EQ(differs.culprit(), 2);
    for (const char* text :
         {"\"tensor3\"", "rate 0.25", "on rank 2", "the constructor's optimizer on rank 0"})
      EXPECT_NE(std::string(differs.what()).find(text), std::string::npos) << differs.what();
    const Error slots = refusal(std::make_shared<SgdMomentum>(0.01));
    EXPECT_EQ(slots.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(slots.what()).find("\"tensor3\""), std::string::npos) << slots.what();
  });
}

}  // namespace
}  // namespace lockstep
