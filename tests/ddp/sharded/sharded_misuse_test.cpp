// ShardedOptimizer: a step that is bad, arguments that are wrong, a rank that leaves: one clear error,
// everywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "lockstep/ddp/local_sgd.hpp"
#include "tests/ddp/sharded/arrangements.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::Arrangement;
using testing::floats;
using testing::kArrangements;
using testing::on_ranks;
using testing::run_step;
using testing::small_buckets;
using testing::thrown_by;

TEST(ShardedMisuse, AStepThatIsBadAnywhereIsTheSameErrorEverywhereAndTheNextOneWorks) {
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      Model model(8, 2);
      const auto optimizer = std::make_shared<SgdMomentum>(1.0, 0.0);
      ShardedOptimizer sharded(communicator, model.list(arrangement.stage), optimizer,
                               small_buckets(arrangement));
      const bool culprit = communicator.rank() == 1;
      const auto expect_failure = [&](const std::string& text) {
        const Error error = thrown_by([&] { sharded.wait(); });
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_EQ(error.culprit(), 1);
        EXPECT_NE(std::string(error.what()).find("gradients of step 1: rank 1 " + text), std::string::npos)
            << error.what();
      };
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        if (!culprit || i != 2) sharded.mark_ready(i);
      }
      expect_failure("did not mark 1 of 8 gradients: \"tensor2\" (2); mark every gradient");
      for (std::size_t i = 0; i < model.tensors(); ++i) sharded.mark_ready(i);
      if (culprit) {
        EXPECT_NE(std::string(thrown_by([&] { sharded.mark_ready(5); }).what())
                      .find("\"tensor5\" was already marked in step 1"),
                  std::string::npos);
      }
      expect_failure("marked \"tensor5\" (5) once too often");
      run_step(sharded, model, communicator.rank(), 0);
      sharded.step();
      sharded.wait_parameters();
      for (std::size_t e = 0; e < model.elements(3); ++e)
        EXPECT_FLOAT_EQ(floats(sharded.value(3))[e], -summed_gradient(3, 0, 3, e) / 3);
    });
  }
}

TEST(ShardedMisuse, GradientsThatAreNotFiniteAreNamedAndLeftOut) {
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(8, 2);
      ShardedOptions options = small_buckets(arrangement);
      options.check_finite = true;
      ShardedOptimizer sharded(communicator, model.list(options.stage), std::make_shared<AdamW>(0.1),
                               options);
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        if (communicator.rank() == 0 && i == 6) floats(sharded.gradient(i))[0] = std::nanf("");
        sharded.mark_ready(i);
      }
      try {
        sharded.wait();
        ADD_FAILURE() << "no error";
      } catch (const NonFiniteGradient& error) {
        EXPECT_EQ(error.parameter(), 6u);
        EXPECT_EQ(error.culprit(), 0);
      }
      run_step(sharded, model, communicator.rank(), 0);
      sharded.step();
      sharded.wait_parameters();
      for (std::size_t e = 0; e < model.elements(6); ++e)
        EXPECT_TRUE(std::isfinite(floats(sharded.value(6))[e]));
    });
  }
}

/// One that fails on a single rank.
class Failing final : public Optimizer {
 public:
  explicit Failing(bool here) : Optimizer(0.1), here_(here) {}
  std::string name() const override { return "failing"; }
  std::vector<std::string> slots() const override { return {}; }
  void step(const OptimizerSlice&) const override {
    if (here_) throw std::runtime_error("it diverged");
  }

 private:
  const bool here_;
};

TEST(ShardedMisuse, AnOptimizerThatThrowsIsAnErrorOnEveryRank) {
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(8, 2);
      ShardedOptimizer sharded(communicator, model.list(arrangement.stage),
                               std::make_shared<Failing>(communicator.rank() == 1),
                               small_buckets(arrangement));
      run_step(sharded, model, communicator.rank(), 0);
      const Error error = thrown_by([&] {
        sharded.step();
        sharded.wait_parameters();
      });
      EXPECT_EQ(error.culprit(), 1);
      EXPECT_NE(std::string(error.what()).find("step on rank 1: it diverged"), std::string::npos)
          << error.what();
    });
  }
}

TEST(ShardedMisuse, AnIndexOrAnOldValueIsRefusedOnTheSpot) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 2);
    ShardedOptimizer sharded(communicator, model.list(ZeroStage::gradients),
                             std::make_shared<SgdMomentum>(0.01));
    const auto message = [](const std::function<void()>& call) {
      const Error error = thrown_by(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    };
    EXPECT_NE(message([&] { sharded.mark_ready(4); }).find("has 4 parameters"), std::string::npos);
    EXPECT_NE(message([&] { sharded.wait_parameters(7); }).find("has 4 parameters"), std::string::npos);
    run_step(sharded, model, communicator.rank(), 0);
    sharded.step();
    EXPECT_NE(message([&] { sharded.mark_ready(0); }).find("call wait_parameters(0) before forward"),
              std::string::npos);
    sharded.wait_parameters();
  });
}

/// The shards of stage 1 may lie where the next backward writes.
TEST(ShardedMisuse, AStepInTheMidstOfTheNextOneIsRefused) {
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(4, 2);
      ShardedOptimizer sharded(communicator, model.list(arrangement.stage),
                               std::make_shared<SgdMomentum>(1.0, 0.0), small_buckets(arrangement));
      run_step(sharded, model, communicator.rank(), 0);
      const auto expect_refusals = [&] {
        const std::function<void()> calls[] = {[&] { sharded.step(); }, [&] { sharded.clip_gradients(1); }};
        for (const auto& call : calls) {
          const Error error = thrown_by(call);
          EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
          EXPECT_NE(std::string(error.what()).find("in the midst of step 2; call wait()"), std::string::npos)
              << error.what();
        }
      };
      {
        const auto pause = sharded.no_sync();
        expect_refusals();
      }
      sharded.mark_ready(3);
      expect_refusals();
      for (std::size_t i = 0; i < 3; ++i) sharded.mark_ready(i);
      sharded.wait();
      EXPECT_EQ(sharded.steps(), 0u);
      sharded.step();
      sharded.wait_parameters();
    });
  }
}

TEST(ShardedMisuse, ARefusedRestoreChangesNothing) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 2);
    ShardedOptimizer sharded(communicator, model.list(ZeroStage::gradients), std::make_shared<AdamW>(0.1));
    run_step(sharded, model, communicator.rank(), 0);
    sharded.step();
    sharded.wait_parameters();
    {
      const auto pause = sharded.no_sync();
      EXPECT_EQ(thrown_by([&] { sharded.restored(5'000); }).code(), ErrorCode::invalid_argument);
    }
    EXPECT_EQ(sharded.steps(), 1u);
  });
}

/// Of the good step before nothing is left either.
TEST(ShardedMisuse, GradientsOfABadStepAreNotStepped) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 2);
    ShardedOptimizer sharded(communicator, model.list(ZeroStage::gradients), std::make_shared<AdamW>(0.1));
    run_step(sharded, model, communicator.rank(), 0);
    sharded.mark_ready(0);
    thrown_by([&] { sharded.wait(); });
    EXPECT_NE(std::string(thrown_by([&] { sharded.step(); }).what()).find("no reduced gradients"),
              std::string::npos);
    EXPECT_EQ(sharded.steps(), 0u);
  });
}

TEST(ShardedMisuse, GradientsFromBeforeARestoreAreNotStepped) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 2);
    ShardedOptimizer sharded(communicator, model.list(ZeroStage::gradients), std::make_shared<AdamW>(0.1));
    run_step(sharded, model, communicator.rank(), 0);
    for (const TensorSlice& slice : sharded.slices()) {
      if (slice.name.find('#') == std::string::npos)
        std::fill_n(static_cast<float*>(slice.data), slice.count, 3.0f);
    }
    sharded.restored(5);
    for (std::size_t i = 0; i < model.tensors(); ++i) {
      for (std::size_t e = 0; e < model.elements(i); ++e)
        ASSERT_EQ(model.values(i)[e], 3) << "restored() gathers the values: " << i;
    }
    EXPECT_EQ(thrown_by([&] { sharded.step(); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(sharded.steps(), 5u);
    run_step(sharded, model, communicator.rank(), 1);
    sharded.step();
    sharded.wait_parameters();
    EXPECT_EQ(sharded.steps(), 6u);
  });
}

TEST(ShardedMisuse, WhatRanksMustShareIsCompared) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 2);
    const double momentum = communicator.rank() == 0 ? 0.9 : 0.8;
    const Error settings = thrown_by([&] {
      ShardedOptimizer(communicator, model.list(ZeroStage::gradients),
                       std::make_shared<SgdMomentum>(0.1, momentum));
    });
    EXPECT_EQ(settings.code(), ErrorCode::mismatch);
    EXPECT_EQ(settings.culprit(), 1);
    EXPECT_NE(std::string(settings.what()).find("ShardedOptimizer: rank 1 has sgd"), std::string::npos)
        << settings.what();
    const double smaller = communicator.rank() == 0 ? 1e-9 : 2e-9;
    for (const auto& rule : std::vector<std::shared_ptr<Optimizer>>{
             std::make_shared<SgdMomentum>(0.1 + smaller), std::make_shared<SgdMomentum>(0.1, 0.9, smaller),
             std::make_shared<AdamW>(0.1, smaller),
             std::make_shared<AdamW>(0.1, 0.01, 0.9, 0.999, 1e-8 + 1e-6 * smaller)}) {
      const Error close =
          thrown_by([&] { ShardedOptimizer(communicator, model.list(ZeroStage::gradients), rule); });
      EXPECT_EQ(close.code(), ErrorCode::mismatch) << rule->name();
    }
    std::vector<double> wide(3);
    const std::vector<Parameter> doubles{{"wide", DataType::f64, {3}, wide.data(), wide.data()}};
    const Error type =
        thrown_by([&] { ShardedOptimizer(communicator, doubles, std::make_shared<SgdMomentum>(0.1)); });
    EXPECT_EQ(type.code(), ErrorCode::not_supported);
    EXPECT_NE(std::string(type.what()).find("\"wide\" f64 [3] is not f32, bf16 or f16"), std::string::npos);
  });
}

/// Stage 2 reads the caller's gradients, stage 1 has views.
TEST(ShardedMisuse, GradientsThatTheStageDoesNotReadOrLacksAreNamed) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 2);
    const auto message = [&](ZeroStage of_list, ZeroStage stage) {
      const Error error = thrown_by([&] {
        ShardedOptimizer(communicator, model.list(of_list), std::make_shared<AdamW>(0.1), {.stage = stage});
      });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return std::string(error.what());
    };
    const std::string unread = message(ZeroStage::gradients, ZeroStage::optimizer);
    EXPECT_NE(unread.find("has memory for its gradient, which nothing reads"), std::string::npos) << unread;
    const std::string lacking = message(ZeroStage::optimizer, ZeroStage::gradients);
    EXPECT_NE(lacking.find("has a null gradient"), std::string::npos) << lacking;
  });
}

/// By the names that ShardedOptions has, whatever they mean to the reducer inside.
TEST(ShardedMisuse, OptionsThatDifferAreTheCallersOwn) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 2);
    const bool odd = communicator.rank() == 1;
    const auto message = [&](const ShardedOptions& options) {
      const Error error = thrown_by([&] {
        ShardedOptimizer(communicator, model.list(options.stage), std::make_shared<AdamW>(0.1), options);
      });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.culprit(), 1);
      const std::string text = error.what();
      EXPECT_EQ(text.rfind("ShardedOptimizer: ", 0), 0u) << text;
      return text;
    };
    const std::string stage = message({.stage = odd ? ZeroStage::optimizer : ZeroStage::gradients});
    EXPECT_NE(stage.find("stage 1, no values_as_views; rank 0 has "), std::string::npos) << stage;
    EXPECT_NE(stage.find("stage 2, no values_as_views; use the same"), std::string::npos) << stage;
    for (const ZeroStage both : {ZeroStage::optimizer, ZeroStage::gradients}) {
      const std::string views = message({.stage = both, .values_as_views = odd});
      EXPECT_NE(views.find(", values_as_views; rank 0 has "), std::string::npos) << views;
    }
    const std::string finite = message({.check_finite = odd});
    EXPECT_NE(finite.find("options differ on rank 1"), std::string::npos) << finite;
  });
}

TEST(ShardedMisuse, AStageThatIsNoneIsRefused) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(4, 2);
    const ShardedOptions options{.stage = static_cast<ZeroStage>(3)};
    const Error error = thrown_by([&] {
      ShardedOptimizer(communicator, model.list(options.stage), std::make_shared<AdamW>(0.1), options);
    });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("there is no stage 3"), std::string::npos) << error.what();
    ShardedOptimizer(communicator, model.list(ZeroStage::gradients), std::make_shared<AdamW>(0.1));
  });
}

/// A checkpoint could not tell them apart.
TEST(ShardedMisuse, ANameOfWhatIsKeptOfAnotherParameterIsRefused) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    std::vector<float> values(8);
    const auto named = [&](const std::string& name) {
      return Parameter{name, DataType::f32, {8}, values.data(), values.data()};
    };
    const auto expect_refusal = [](const std::string& name, const std::function<void()>& call) {
      const Error error = thrown_by(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("two tensors \"" + name + "\""), std::string::npos)
          << error.what();
    };
    const auto rule = std::make_shared<SgdMomentum>(0.1);
    for (const std::string name : {"w#momentum", "w#master", "w#joined"}) {
      expect_refusal(name, [&] {
        ShardedOptimizer(communicator, std::vector<Parameter>{named("w"), named(name)}, rule);
      });
    }
    ShardedOptimizer sharded(communicator, std::vector<Parameter>{named("w"), named("w#moment1")}, rule);
    for (const std::string name : {"w#momentum", "w#joined"}) {
      expect_refusal(name, [&] { sharded.add_parameters(std::vector<Parameter>{named(name)}); });
    }
    sharded.add_parameters(std::vector<Parameter>{named("w#moment2")});
  });
}

/// Each shard would follow the gradients of one rank.
TEST(ShardedMisuse, AHookThatLeavesGradientsLocalIsRefused) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    for (const Arrangement& arrangement : kArrangements) {
      Model model(4, 2);
      ShardedOptions options = small_buckets(arrangement);
      options.hook = std::make_shared<LocalSgd>(LocalSgdOptions{});
      const Error error = thrown_by([&] {
        ShardedOptimizer(communicator, model.list(options.stage), std::make_shared<SgdMomentum>(0.1),
                         options);
      });
      EXPECT_EQ(error.code(), ErrorCode::not_supported);
      EXPECT_NE(std::string(error.what()).find("\"local_sgd from step 1 every 8\" leaves gradients"),
                std::string::npos)
          << error.what();
    }
  });
}

/// Every bucket that was lent comes back, and nobody waits for a hook that is not called any more.
TEST(ShardedMisuse, AHookThatThrowsEndsTheStepOnEveryRank) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(20, 5);
    ShardedOptions options = small_buckets({ZeroStage::gradients, false});
    options.hook = make_hook("throwing", [](Communicator& c, const GradientBucket& bucket) {
      if (c.rank() == 1 && bucket.index == 1) throw std::runtime_error("no more paper");
      return HookResult{c.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op())};
    });
    ShardedOptimizer sharded(communicator, model.list(options.stage), std::make_shared<SgdMomentum>(0.1),
                             options);
    ASSERT_GT(sharded.plan().buckets.size(), 3u);
    communicator.barrier();  // All have made theirs.
    const Error error = thrown_by([&] { run_step(sharded, model, communicator.rank(), 0); });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_NE(std::string(error.what()).find("hook \"throwing\" failed on rank 1 in start of bucket 1"),
              std::string::npos)
        << error.what();
  });
}

TEST(ShardedMisuse, DestructionInTheMidstOfAStepTellsThePeers) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(20, 5);
    ShardedOptimizer sharded(communicator, model.list(ZeroStage::gradients),
                             std::make_shared<SgdMomentum>(0.1),
                             small_buckets({ZeroStage::gradients, false}));
    const bool quitter = communicator.rank() == 0;
    for (std::size_t i = model.tensors(); i-- > (quitter ? 12u : 0u);) sharded.mark_ready(i);
    if (quitter) return;
    const Error error = thrown_by([&] { sharded.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_NE(std::string(error.what()).find("destroyed its ShardedOptimizer"), std::string::npos)
        << error.what();
  });
}

}  // namespace
}  // namespace lockstep
