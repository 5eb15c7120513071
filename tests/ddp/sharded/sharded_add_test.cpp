// ShardedOptimizer::add_parameters: those that join count as if they had an optimizer of their own from then
// on, the others as if nobody had joined; checkpoints know who joined when; lists that differ do no harm.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "lockstep/ddp.hpp"
#include "tests/ddp/sharded/arrangements.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::Arrangement;
using testing::floats;
using testing::kArrangements;
using testing::on_ranks;
using testing::small_buckets;
using testing::thrown_by;

constexpr std::size_t kTensors = 16;
constexpr std::size_t kAtFirst = 9;
constexpr std::size_t kJoin = 3, kEnd = 7;  // Steps.

std::span<const Parameter> first_of(Model& model, ZeroStage stage = ZeroStage::gradients) {
  return std::span(model.list(stage)).first(kAtFirst);
}
std::span<const Parameter> rest_of(Model& model, ZeroStage stage = ZeroStage::gradients) {
  return std::span(model.list(stage)).subspan(kAtFirst);
}

std::shared_ptr<AdamW> optimizer() { return std::make_shared<AdamW>(0.01); }

/// One whole step of the first `tensors`.
void step(ShardedOptimizer& sharded, const Model& model, int rank, std::size_t tensors) {
  const std::size_t number = sharded.steps();
  sharded.wait_parameters();
  for (std::size_t i = tensors; i-- > 0;) {
    for (std::size_t e = 0; e < model.elements(i); ++e)
      floats(sharded.gradient(i))[e] = local_gradient(rank, number, i, e);
    sharded.mark_ready(i);
  }
  sharded.wait();
  sharded.step();
}

void train(ShardedOptimizer& sharded, Model& model, ZeroStage stage, int rank, std::size_t end) {
  while (sharded.steps() < end) {
    if (sharded.steps() == kJoin) sharded.add_parameters(rest_of(model, stage));
    step(sharded, model, rank, sharded.steps() < kJoin ? kAtFirst : kTensors);
  }
  sharded.wait_parameters();
}

/// What one process makes of the averages; an optimizer of its own for each parameter.
std::vector<float> expected(const Model& model, std::size_t i, int ranks) {
  const std::size_t count = model.elements(i);
  std::vector<float> values(count, 1), gradients(count), first(count), second(count);
  std::uint64_t own = 0;
  for (std::size_t s = i < kAtFirst ? 0 : kJoin; s < kEnd; ++s) {
    for (std::size_t e = 0; e < count; ++e)
      gradients[e] = summed_gradient(ranks, s, i, e) / static_cast<float>(ranks);
    const std::span<float> slots[] = {first, second};
    optimizer()->step({++own, values, gradients, slots});
  }
  return values;
}

/// Ranks have values of their own until rank 0's are given to all.
void fill(Model& model, int rank) {
  for (std::size_t i = 0; i < kTensors; ++i)
    for (float& value : model.values(i)) value = rank == 0 ? 1 : -5;
}

std::map<std::string, std::vector<std::byte>> contents(ShardedOptimizer& sharded, std::size_t of_first) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < of_first; ++i) names.insert("tensor" + std::to_string(i));
  std::map<std::string, std::vector<std::byte>> all;
  for (const TensorSlice& slice : sharded.slices()) {
    if (!names.contains(slice.name.substr(0, slice.name.find('#'))) || slice.count == 0) continue;
    const auto* data = static_cast<const std::byte*>(slice.data);
    all[slice.name + " " + std::to_string(slice.first)].assign(data,
                                                               data + slice.count * size_of(slice.type));
  }
  return all;
}

TEST(ShardedAdd, JoinersAreSteppedAsIfByAnOptimizerOfTheirOwn) {
  for (const Arrangement& arrangement : kArrangements) {
    for (const int ranks : {1, 2, 3}) {
      on_ranks(ranks, "auto", [&](Communicator& communicator) {
        Model model(kTensors, 3);
        fill(model, communicator.rank());
        ShardedOptimizer sharded(communicator, first_of(model, arrangement.stage), optimizer(),
                                 small_buckets(arrangement));
        train(sharded, model, arrangement.stage, communicator.rank(), kEnd);
        EXPECT_EQ(sharded.plan().buckets[0].parts[0].parameter, kTensors - 1);
        for (std::size_t i = 0; i < kTensors; ++i) {
          const auto values = expected(model, i, ranks);
          for (std::size_t e = 0; e < values.size(); ++e)
            ASSERT_NEAR(floats(sharded.value(i))[e], values[e], ranks == 3 ? 1e-5 : 0) << i << " " << e;
        }
      });
    }
  }
}

TEST(ShardedAdd, NothingMovesAndHooksKeepWhatTheyKnow) {
  for (const Arrangement& arrangement : kArrangements) {
    for (const bool hooked : {false, true}) {
      on_ranks(2, "auto", [&](Communicator& communicator) {
        Model model(kTensors, 3);
        fill(model, communicator.rank());
        ShardedOptions options = small_buckets(arrangement);
        if (hooked) options.hook = make_top_k_hook({.share = 0.2});
        ShardedOptimizer sharded(communicator, first_of(model, options.stage), optimizer(), options);
        train(sharded, model, options.stage, communicator.rank(), kJoin);
        std::vector<void*> places;
        for (std::size_t i = 0; i < kAtFirst; ++i)
          places.insert(places.end(), {sharded.gradient(i), sharded.value(i)});
        const auto before = contents(sharded, kAtFirst);
        const ShardedMemory memory = sharded.memory();
        sharded.add_parameters(rest_of(model, options.stage));
        EXPECT_EQ(contents(sharded, kAtFirst), before);
        for (std::size_t i = 0; i < kAtFirst; ++i) {
          EXPECT_EQ(sharded.gradient(i), places[2 * i]);
          EXPECT_EQ(sharded.value(i), places[2 * i + 1]);
        }
        for (std::size_t i = kAtFirst; i < kTensors; ++i)
          for (std::size_t e = 0; e < model.elements(i); ++e) ASSERT_EQ(floats(sharded.value(i))[e], 1);
        EXPECT_GT(sharded.memory().values, memory.values);
        EXPECT_GT(sharded.memory().optimizer, memory.optimizer);
        step(sharded, model, communicator.rank(), kTensors);
        sharded.wait_parameters();
      });
    }
  }
}

TEST(ShardedAdd, ACheckpointKnowsWhoJoinedWhen) {
  const internal::TemporaryDirectory directory;
  const std::string checkpoint = directory.path() + "/last";
  const auto run = [&](int ranks, std::size_t from, std::size_t to) {
    std::vector<float> values;
    on_ranks(ranks, "auto", [&](Communicator& communicator) {
      Model model(kTensors, 3);
      fill(model, communicator.rank());
      ShardedOptimizer sharded(communicator, first_of(model), optimizer(),
                               small_buckets({ZeroStage::gradients, false}));
      if (from > 0) {
        sharded.add_parameters(rest_of(model));
        const CheckpointInfo info = read_checkpoint_info(checkpoint);
        sharded.restored(load_checkpoint(communicator, checkpoint, sharded.slices(info)).step);
      }
      // All ranks contribute alike, so that their number does not matter.
      while (sharded.steps() < to) {
        if (sharded.steps() == kJoin && from == 0) sharded.add_parameters(rest_of(model));
        step(sharded, model, 0, sharded.steps() < kJoin ? kAtFirst : kTensors);
      }
      sharded.wait_parameters();
      if (to < kEnd) save_checkpoint(communicator, checkpoint, sharded.slices(), {.step = sharded.steps()});
      if (communicator.rank() != 0) return;
      for (std::size_t i = 0; i < kTensors; ++i)
        values.insert(values.end(), floats(sharded.value(i)), floats(sharded.value(i)) + model.elements(i));
    });
    return values;
  };
  const auto whole = run(2, 0, kEnd);
  run(2, 0, 5);
  EXPECT_EQ(run(2, 5, kEnd), whole);
  EXPECT_EQ(run(4, 5, kEnd), whole);
}

/// They came one after the other, and share buckets when they are loaded.
TEST(ShardedAdd, ACheckpointKnowsItOfEachThoughAllAreAddedAtOnce) {
  constexpr std::size_t kSecond = kAtFirst + 3;  // From this one on they join a step later than the others.
  const internal::TemporaryDirectory directory;
  const std::string checkpoint = directory.path() + "/last";
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Model model(kTensors, 3), again(kTensors, 3);
    fill(model, communicator.rank()), fill(again, communicator.rank());
    const ShardedOptions options = small_buckets({ZeroStage::gradients, false});
    ShardedOptimizer sharded(communicator, first_of(model), optimizer(), options);
    step(sharded, model, 0, kAtFirst);
    sharded.add_parameters(rest_of(model).first(kSecond - kAtFirst));
    step(sharded, model, 0, kSecond);
    sharded.add_parameters(rest_of(model).subspan(kSecond - kAtFirst));
    step(sharded, model, 0, kTensors);
    sharded.wait_parameters();
    save_checkpoint(communicator, checkpoint, sharded.slices(), {.step = sharded.steps()});
    ShardedOptimizer resumed(communicator, first_of(again), optimizer(), options);
    resumed.add_parameters(rest_of(again));
    resumed.restored(load_checkpoint(communicator, checkpoint, resumed.slices()).step);
    for (auto* one : {&sharded, &resumed}) {
      step(*one, one == &sharded ? model : again, 0, kTensors);
      one->wait_parameters();
    }
    for (std::size_t i = 0; i < kTensors; ++i) EXPECT_EQ(again.values(i), model.values(i)) << i;
  });
}

TEST(ShardedAdd, ListsThatDifferAreNamedAndTheOptimizerIsAsBefore) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    const bool culprit = communicator.rank() == 2;
    Model model(kTensors, 3);
    ShardedOptimizer sharded(communicator, first_of(model), optimizer());
    const auto expect = [&](std::span<const Parameter> added, ErrorCode code, const std::string& text) {
      const Error error = thrown_by([&] { sharded.add_parameters(added); });
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      step(sharded, model, communicator.rank(), kAtFirst);
    };
    std::vector<Parameter> added(rest_of(model).begin(), rest_of(model).end());
    expect(culprit ? std::span(added).first(2) : std::span(added), ErrorCode::mismatch,
           "parameter 11 differs on rank 2, which has only 11 parameters; rank 0 has \"tensor11\"");
    added[5].shape = {7};
    added[5].value = culprit ? nullptr : added[5].value;
    expect(added, culprit ? ErrorCode::invalid_argument : ErrorCode::refused,
           "parameter 14, \"tensor14\" f32 [7], has a null value");
    std::vector<double> wide(3);
    const std::vector<Parameter> doubles{{"wide", DataType::f64, {3}, wide.data(), wide.data()}};
    expect(doubles, ErrorCode::not_supported, "\"wide\" f64 [3] is not f32, bf16 or f16");
    EXPECT_THROW(sharded.mark_ready(kAtFirst), Error);
    sharded.wait_parameters();
    sharded.add_parameters({});
    sharded.add_parameters(rest_of(model));
    step(sharded, model, communicator.rank(), kTensors);
    sharded.wait_parameters();
  });
}

TEST(ShardedAdd, WhatJoinsHasAnOptimizerOfItsOwn) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(kTensors, 3);
    ShardedOptions options;
    const auto still = std::make_shared<AdamW>(0.0, 0.0);
    options.optimizer_of = [&](const Parameter& parameter) -> std::shared_ptr<const Optimizer> {
      return parameter.name == "tensor12" ? still : nullptr;
    };
    ShardedOptimizer sharded(communicator, first_of(model), optimizer(), options);
    sharded.add_parameters(rest_of(model));
    const auto copy = [&](std::size_t i) {
      return std::vector<float>(floats(sharded.value(i)), floats(sharded.value(i)) + model.elements(i));
    };
    const auto before = copy(12), moving = copy(13);
    step(sharded, model, communicator.rank(), kTensors);
    sharded.wait_parameters();
    EXPECT_EQ(copy(12), before);
    EXPECT_NE(copy(13), moving);
  });
}

TEST(ShardedAdd, AStepMayBeLeftOutBefore) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(kTensors, 3);
    ShardedOptimizer sharded(communicator, first_of(model), optimizer());
    step(sharded, model, communicator.rank(), kAtFirst);
    sharded.wait_parameters();
    const std::vector<float> before(floats(sharded.value(0)), floats(sharded.value(0)) + model.elements(0));
    for (std::size_t i = 0; i < kAtFirst; ++i) {
      std::fill_n(floats(sharded.gradient(i)), model.elements(i), 1.0f);
      sharded.mark_ready(i);
    }
    sharded.wait();
    sharded.add_parameters(rest_of(model));
    EXPECT_NE(std::string(thrown_by([&] { sharded.step(); }).what()).find("no reduced gradients"),
              std::string::npos);
    for (std::size_t e = 0; e < before.size(); ++e) EXPECT_EQ(floats(sharded.value(0))[e], before[e]);
    step(sharded, model, communicator.rank(), kTensors);
    sharded.wait_parameters();
  });
}

TEST(ShardedAdd, CallsInTheWrongOrderAreRefused) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(kTensors, 3);
    ShardedOptimizer sharded(communicator, first_of(model), optimizer());
    const auto message = [](const std::function<void()>& call) {
      return std::string(thrown_by(call).what());
    };
    EXPECT_NE(message([&] { sharded.step(); }).find("no reduced gradients; call wait() first"),
              std::string::npos);
    EXPECT_NE(message([&] { sharded.clip_gradients(1); }).find("no reduced gradients"), std::string::npos);
    {
      const auto pause = sharded.no_sync();
      sharded.mark_ready(0);
      sharded.wait();  // Of nothing.
    }
    EXPECT_NE(message([&] { sharded.step(); }).find("outside of no_sync()"), std::string::npos);
    for (std::size_t i = 0; i < kAtFirst; ++i)
      std::fill_n(floats(sharded.gradient(i)), model.elements(i), 1.0f);
    sharded.mark_ready(0);
    EXPECT_EQ(message([&] { sharded.add_parameters(rest_of(model)); }),
              "add_parameters was called in the midst of step 1; call wait() first");
    for (std::size_t i = 1; i < kAtFirst; ++i) sharded.mark_ready(i);
    sharded.wait();
    sharded.add_parameters({});  // Nothing joins, and nothing is left out.
    sharded.step();
    EXPECT_NE(message([&] { sharded.step(); }).find("no reduced gradients"), std::string::npos);
    sharded.add_parameters(rest_of(model));  // Waits for the values.
    for (std::size_t i = 0; i < kAtFirst; ++i) {
      for (std::size_t e = 0; e < model.elements(i); ++e) ASSERT_NE(floats(sharded.value(i))[e], 0) << i;
    }
    step(sharded, model, communicator.rank(), kTensors);
    sharded.wait_parameters();
  });
}

}  // namespace
}  // namespace lockstep
