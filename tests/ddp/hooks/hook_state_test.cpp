// What a hook keeps between steps, through a checkpoint: a resumed run is the uninterrupted one bit for bit;
// a new plan keeps it. Of another number of ranks: hook_state_ranks_test.cpp.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "tests/ddp/hooks/hook_state_cases.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

TEST(HookState, AResumedRunIsTheUninterruptedOneBitForBit) {
  for (const Case& hook : kCases) {
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(hook.name + std::string(" on ") + std::to_string(ranks));
      const Directory directory;
      train_and_save(ranks, hook, directory.checkpoint());
      on_ranks(ranks, "auto", [&](Communicator& communicator) {
        const int rank = communicator.rank();
        Net whole, resumed, forgetful;
        {
          Reducer reducer(communicator, whole.list, options_of(hook));
          train(reducer, whole, rank, kLast);
        }
        {
          Reducer reducer(communicator, resumed.list, options_of(hook));
          load(communicator, reducer, resumed, directory.checkpoint());
          train(reducer, resumed, rank, kLast);
        }
        EXPECT_EQ(resumed.all(), whole.all());
        {  // What the test would see if the hook began anew.
          Reducer reducer(communicator, forgetful.list, options_of(hook));
          load(communicator, reducer, forgetful, directory.checkpoint());
          for (const TensorSlice& slice : reducer.slices())
            std::fill_n(static_cast<float*>(slice.data), slice.count, 0.0f);
          train(reducer, forgetful, rank, kLast);
        }
        EXPECT_EQ(forgetful.all() != whole.all(), hook.keeps);
      });
    }
  }
}

TEST(HookState, AnotherHookIsRefused) {
  const Directory directory;
  train_and_save(2, kCases[0], directory.checkpoint());
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net;
    Reducer reducer(communicator, net.list, {});
    const Error error = thrown_by([&] { load(communicator, reducer, net, directory.checkpoint()); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(error.what()).find("#residual\" f32 [2, "), std::string::npos) << error.what();
  });
}

/// Keeps one tensor, from a step on.
class NamedStateHook final : public CommunicationHook {
 public:
  NamedStateHook(std::string tensor, std::uint64_t from) : tensor_(std::move(tensor)), from_(from) {}
  std::string name() const override { return "named"; }
  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    step_ = bucket.step;
    return communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op());
  }
  std::vector<HookTensor> state() override {
    if (step_ < from_) return {};
    return {{{tensor_, DataType::f32, {1}, 0, 1, &value_}, true}};
  }
  std::uint64_t bytes_on_wire() const override { return 0; }

 private:
  const std::string tensor_;
  const std::uint64_t from_;
  std::uint64_t step_ = 0;
  float value_ = 0;
};

/// Of this rank's own finding, or of a peer's that came first.
void expect_two_tensors(const std::string& name, const std::function<void()>& call) {
  const Error error = thrown_by(call);
  const std::string what = "checkpoints would have two tensors \"" + name + "\": what hook \"";
  EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("rename one of them"), std::string::npos) << error.what();
}

/// A checkpoint could not tell them apart.
TEST(HookState, ANameOfAParametersIsRefusedBeforeTheFirstStep) {
  for (const int ranks : {1, 2}) {
    on_ranks(ranks, "auto", [](Communicator& communicator) {
      Net net;
      net.list[1].name = "matrix#residual";
      expect_two_tensors("matrix#residual", [&] { Reducer(communicator, net.list, options_of(kCases[0])); });
    });
    on_ranks(ranks, "auto", [](Communicator& communicator) {
      Net net;
      Reducer reducer(communicator, std::span(net.list).first(1), options_of(kCases[0]));
      net.list[1].name = "matrix#residual";
      expect_two_tensors("matrix#residual",
                         [&] { reducer.add_parameters(std::span(net.list).subspan(1, 1)); });
    });
  }
}

TEST(HookState, ANameThatComesUpLaterIsRefusedWhenSlicesAreAskedFor) {
  for (const bool to_save : {true, false}) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Net net;
      ReducerOptions options;
      options.hook = std::make_shared<NamedStateHook>("vector", 1);
      Reducer reducer(communicator, net.list, options);
      train(reducer, net, communicator.rank(), 1);
      communicator.barrier();  // Else one rank's refusal may end the other's step.
      expect_two_tensors("vector", [&] {
        static_cast<void>(to_save ? reducer.slices() : reducer.slices(CheckpointInfo{.world_size = 2}));
      });
    });
  }
}

TEST(HookState, ANameOfWhatAnOptimizerKeepsIsRefused) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Net net;
    ShardedOptions options{.stage = ZeroStage::optimizer};
    options.hook = std::make_shared<NamedStateHook>("vector#momentum", 0);
    expect_two_tensors("vector#momentum", [&] {
      ShardedOptimizer(communicator, net.list, std::make_shared<SgdMomentum>(0.1), options);
    });
  });
}

TEST(HookState, ANewPlanKeepsIt) {
  for (const Case& hook : kCases) {
    SCOPED_TRACE(hook.name);
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Net net;
      Reducer reducer(communicator, net.list, options_of(hook));
      train(reducer, net, communicator.rank(), kSaved);
      const auto before = waiting(communicator, reducer);
      reducer.freeze(std::vector<std::size_t>{1});
      const auto after = waiting(communicator, reducer);
      for (const auto& [name, sum] : after) EXPECT_EQ(sum, before.at(name)) << name;
      EXPECT_EQ(after.count("vector#residual"), 0u);
      EXPECT_EQ(after.count("large#residual"), before.count("large#residual"));
    });
  }
}

/// Frozen parameters send nothing; what waits for them waits on, until another run is restored.
TEST(HookState, AThawedParameterFindsItAgain) {
  for (const Case& hook : kCases) {
    SCOPED_TRACE(hook.name);
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Net net;
      Reducer reducer(communicator, net.list, options_of(hook));
      train(reducer, net, communicator.rank(), kSaved);
      const auto before = waiting(communicator, reducer);
      for (const std::vector<std::size_t>& frozen : {std::vector<std::size_t>{0, 2}, {2}, {}})
        reducer.freeze(frozen);
      EXPECT_EQ(waiting(communicator, reducer), before);
      reducer.freeze(std::vector<std::size_t>{2});
      reducer.restored(reducer.steps());
      reducer.freeze({});
      for (const auto& [name, sum] : waiting(communicator, reducer)) {
        if (!name.starts_with(net.list[2].name)) continue;
        EXPECT_EQ(sum, std::vector<double>(sum.size())) << name;
        EXPECT_EQ(sum != before.at(name), hook.keeps) << name;
      }
    });
  }
}

/// Of a run that goes back to before PowerSGD begins.
TEST(HookState, WaitsOnWhileGradientsTravelAsTheyAre) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net;
    ReducerOptions options = options_of(kCases[0]);
    options.hook = make_power_sgd_hook({.rank = 2, .start_step = 3});
    Reducer reducer(communicator, net.list, options);
    train(reducer, net, communicator.rank(), kSaved);
    const auto before = waiting(communicator, reducer);
    reducer.restored(0);
    for (const std::uint64_t step : {1u, 2u}) {
      train(reducer, net, communicator.rank(), step);
      EXPECT_EQ(waiting(communicator, reducer), before) << step;
    }
    train(reducer, net, communicator.rank(), 3);
    EXPECT_NE(waiting(communicator, reducer), before);
  });
}

/// Local SGD depends on the number of the step alone: where it averages, and where it begins to.
TEST(HookState, LocalSgdGoesOnCountingItsSteps) {
  const auto run = [](Communicator& communicator, Net& net, const std::string& from, std::uint64_t last,
                      const std::string& to) {
    auto local = std::make_shared<LocalSgd>(LocalSgdOptions{.start_step = 2, .period = 4});
    ReducerOptions options{.bucket_bytes = 8'192, .first_bucket_bytes = 2'000};
    options.hook = local;
    Reducer reducer(communicator, net.list, options);
    if (!from.empty()) load(communicator, reducer, net, from);
    std::uint64_t averaged = 0;
    while (reducer.steps() < last) {
      train(reducer, net, communicator.rank(), reducer.steps() + 1);
      if (local->average_parameters()) averaged = averaged * 100 + reducer.steps();
    }
    if (!to.empty()) save(communicator, reducer, net, to);
    return averaged;
  };
  const Directory directory;
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net whole, parts, resumed;
    EXPECT_EQ(run(communicator, whole, "", 14, ""), 50913u);  // After steps 5, 9 and 13.
    run(communicator, parts, "", kSaved, directory.checkpoint());
    EXPECT_EQ(run(communicator, resumed, directory.checkpoint(), 14, ""), 913u);
    EXPECT_EQ(resumed.all(), whole.all());
  });
}

/// Back to an older checkpoint in the same process: the step that was averaged comes again.
TEST(HookState, LocalSgdAveragesAStepThatComesAgain) {
  const Directory directory;
  on_ranks(2, "auto", [&](Communicator& communicator) {
    auto local = std::make_shared<LocalSgd>(LocalSgdOptions{.period = 4});
    ReducerOptions options;
    options.hook = local;
    Net net;
    Reducer reducer(communicator, net.list, options);
    train(reducer, net, communicator.rank(), 3);
    save(communicator, reducer, net, directory.checkpoint());
    for (int run = 0; run < 2; ++run) {
      train(reducer, net, communicator.rank(), 4);
      EXPECT_TRUE(local->average_parameters());
      EXPECT_FALSE(local->average_parameters());
      load(communicator, reducer, net, directory.checkpoint());
    }
  });
}

TEST(HookState, ShardedTrainingWithAHookResumesBitForBit) {
  const auto run = [](Communicator& communicator, Net& net, const std::string& from, std::uint64_t last,
                      const std::string& to) {
    ShardedOptions options{.bucket_bytes = 8'192, .first_bucket_bytes = 2'000};
    options.stage = ZeroStage::optimizer;
    options.hook = make_quantised_hook();
    ShardedOptimizer sharded(communicator, net.list, std::make_shared<AdamW>(0.01), options);
    if (!from.empty()) {
      const CheckpointInfo info = read_checkpoint_info(from);
      sharded.restored(load_checkpoint(communicator, from, sharded.slices(info)).step);
    }
    while (sharded.steps() < last) {
      sharded.wait_parameters();
      for (std::size_t i = net.list.size(); i-- > 0;) {
        for (std::size_t e = 0; e < net.values[i].size(); ++e)
          static_cast<float*>(sharded.gradient(i))[e] =
              net.gradient(i, e, communicator.rank(), sharded.steps());
        sharded.mark_ready(i);
      }
      sharded.wait();
      sharded.step();
    }
    sharded.wait_parameters();
    if (!to.empty()) save_checkpoint(communicator, to, sharded.slices(), {.step = sharded.steps()});
  };
  const Directory directory;
  on_ranks(3, "auto", [&](Communicator& communicator) {
    Net whole, parts, resumed;
    run(communicator, whole, "", kLast, "");
    run(communicator, parts, "", kSaved, directory.checkpoint());
    run(communicator, resumed, directory.checkpoint(), kLast, "");
    EXPECT_EQ(resumed.all(), whole.all());
  });
}

}  // namespace
}  // namespace lockstep
