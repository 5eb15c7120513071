// What a hook keeps between steps, through a checkpoint: a resumed run is the uninterrupted one bit for bit;
// on another number of ranks nothing that was not sent yet is lost; a new plan keeps it.
#include <gtest/gtest.h>

#include <numeric>

#include "lockstep/ddp.hpp"
#include "tests/ddp/hooks/net.hpp"
#include "tests/ddp/thrown_by.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

constexpr std::uint64_t kSaved = 5, kLast = 12;

/// Gone afterwards.
class Directory {
 public:
  std::string checkpoint() const { return directory_.path() + "/last"; }

 private:
  const internal::TemporaryDirectory directory_;
};

struct Case {
  const char* name;
  std::shared_ptr<CommunicationHook> (*make)();
  bool keeps = true;
};
constexpr Case kCases[] = {
    {"i8", [] { return make_quantised_hook(); }},
    {"f8", [] { return make_quantised_hook({.type = DataType::f8e4m3, .block = 64}); }},
    {"top_k", [] { return make_top_k_hook({.share = 0.05}); }},
    {"powersgd", [] { return make_power_sgd_hook({.rank = 2, .start_step = 3}); }},
    {"powersgd that starts after the checkpoint",
     [] { return make_power_sgd_hook({.rank = 2, .start_step = 8}); }, false},
    {"bf16", [] { return make_half_hook(); }, false},
};

ReducerOptions options_of(const Case& hook) {
  ReducerOptions options{.bucket_bytes = 8'192, .first_bucket_bytes = 2'000};
  options.hook = hook.make();
  return options;
}

void train(Reducer& reducer, Net& net, int rank, std::uint64_t last) {
  while (reducer.steps() < last) {
    for (std::size_t i = net.list.size(); i-- > 0;) {
      auto* gradient = static_cast<float*>(reducer.gradient(i));
      for (std::size_t e = 0; e < net.values[i].size(); ++e)
        gradient[e] = net.gradient(i, e, rank, reducer.steps());
      reducer.mark_ready(i);
    }
    reducer.wait();
    for (std::size_t i = 0; i < net.list.size(); ++i) {
      const auto* gradient = static_cast<const float*>(reducer.gradient(i));
      for (std::size_t e = 0; e < net.values[i].size(); ++e) net.values[i][e] -= 0.1f * gradient[e];
    }
  }
}

void append(std::vector<TensorSlice>& list, const std::vector<TensorSlice>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

void save(Communicator& communicator, const Reducer& reducer, const Net& net, const std::string& directory) {
  std::vector<TensorSlice> slices = slices_to_save(net.list, communicator);
  append(slices, reducer.slices());
  save_checkpoint(communicator, directory, slices, {.step = reducer.steps()});
}

void load(Communicator& communicator, Reducer& reducer, const Net& net, const std::string& directory) {
  std::vector<TensorSlice> slices = slices_to_load(net.list);
  append(slices, reducer.slices(read_checkpoint_info(directory)));
  reducer.restored(load_checkpoint(communicator, directory, slices).step);
}

void train_and_save(int ranks, const Case& hook, const std::string& directory) {
  on_ranks(ranks, "auto", [&](Communicator& communicator) {
    Net net;
    Reducer reducer(communicator, net.list, options_of(hook));
    train(reducer, net, communicator.rank(), kSaved);
    save(communicator, reducer, net, directory);
  });
}

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

/// What all ranks have not sent, by tensor, as it enters the next average.
std::map<std::string, std::vector<double>> waiting(Communicator& communicator, const Reducer& reducer) {
  std::map<std::string, std::vector<double>> sums;
  for (const TensorSlice& slice : reducer.slices()) {
    if (slice.name.find("#residual") == std::string::npos) continue;
    std::size_t elements = 1;
    for (std::size_t d = 1; d < slice.shape.size(); ++d) elements *= slice.shape[d];
    std::vector<double>& sum = sums[slice.name];
    sum.resize(elements);
    for (std::size_t i = 0; i < slice.count; ++i)
      sum[slice.first % elements + i] = static_cast<const float*>(slice.data)[i];
  }
  for (auto& [name, sum] : sums)
    communicator.all_reduce(sum.data(), sum.data(), sum.size(), DataType::f64, ReduceOp::avg);
  return sums;
}

TEST(HookState, OnAnotherNumberOfRanksNothingThatWaitsIsLost) {
  for (const Case& hook : kCases) {
    for (const auto& [before, after] : {std::pair{2, 3}, std::pair{3, 2}, std::pair{4, 2}}) {
      SCOPED_TRACE(hook.name + std::string(" from ") + std::to_string(before));
      const Directory directory;
      std::map<std::string, std::vector<double>> expected;
      on_ranks(before, "auto", [&](Communicator& communicator) {
        Net net;
        Reducer reducer(communicator, net.list, options_of(hook));
        train(reducer, net, communicator.rank(), kSaved);
        save(communicator, reducer, net, directory.checkpoint());
        auto mine = waiting(communicator, reducer);
        if (communicator.rank() == 0) expected = std::move(mine);
      });
      on_ranks(after, "auto", [&](Communicator& communicator) {
        Net net;
        Reducer reducer(communicator, net.list, options_of(hook));
        load(communicator, reducer, net, directory.checkpoint());
        const auto found = waiting(communicator, reducer);
        ASSERT_EQ(found.size(), expected.size());
        for (const auto& [name, sum] : expected) {
          for (std::size_t i = 0; i < sum.size(); ++i)
            ASSERT_NEAR(found.at(name)[i], sum[i], 1e-6) << name << " " << i;
        }
        train(reducer, net, communicator.rank(), kLast);
      });
    }
  }
}

/// What a hook has left of steps of other samples comes back in the weight that it was left in.
TEST(HookState, WithWeightsNothingIsLostWhateverTheSamples) {
  const std::vector<std::vector<std::uint64_t>> steps{{8, 8, 8}, {8, 4, 1}, {8, 8, 8}, {0, 1, 1}, {5, 5, 5}};
  for (const Case& hook : kCases) {
    if (!hook.keeps) continue;
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(hook.name + std::string(" on ") + std::to_string(ranks));
      on_ranks(ranks, "auto", [&](Communicator& communicator) {
        const auto self = static_cast<std::size_t>(communicator.rank());
        const Net net;
        ReducerOptions options = options_of(hook);
        options.weighted = true;
        Reducer reducer(communicator, net.list, options);
        std::vector<std::vector<double>> due(net.list.size()), got;  // Sums over all steps.
        for (std::size_t i = 0; i < due.size(); ++i) due[i].resize(net.values[i].size());
        got = due;
        for (const auto& samples : steps) {
          const double total = std::accumulate(samples.begin(), samples.begin() + ranks, 0.0);
          ASSERT_TRUE(reducer.begin_step(samples[self]));
          for (std::size_t i = 0; i < due.size(); ++i) {
            for (std::size_t e = 0; e < due[i].size(); ++e) {
              for (int r = 0; r < ranks; ++r) {
                const double weight = static_cast<double>(samples[static_cast<std::size_t>(r)]) / total;
                due[i][e] += weight * net.gradient(i, e, r, reducer.steps());
              }
              if (samples[self] == 0) continue;
              static_cast<float*>(reducer.gradient(i))[e] =
                  net.gradient(i, e, communicator.rank(), reducer.steps());
            }
            if (samples[self] > 0) reducer.mark_ready(i);
          }
          reducer.wait();
          for (std::size_t i = 0; i < due.size(); ++i) {
            for (std::size_t e = 0; e < due[i].size(); ++e)
              got[i][e] += static_cast<const float*>(reducer.gradient(i))[e];
          }
        }
        const auto left = waiting(communicator, reducer);
        for (std::size_t i = 0; i < due.size(); ++i) {
          const auto kept = left.find(net.list[i].name + "#residual");
          for (std::size_t e = 0; e < due[i].size(); ++e) {
            const double later = kept != left.end() ? ranks * kept->second[e] : 0;
            ASSERT_NEAR(got[i][e] + later, due[i][e], 1e-4) << net.list[i].name << " " << e;
          }
        }
      });
    }
  }
}

TEST(HookState, OneRankKeepsNothingAndHandsNothingOn) {
  for (const Case& hook : kCases) {
    for (const auto& [before, after] : {std::pair{1, 2}, std::pair{2, 1}}) {
      SCOPED_TRACE(hook.name);
      const Directory directory;
      train_and_save(before, hook, directory.checkpoint());
      on_ranks(after, "auto", [&](Communicator& communicator) {
        Net net;
        Reducer reducer(communicator, net.list, options_of(hook));
        load(communicator, reducer, net, directory.checkpoint());
        EXPECT_EQ(reducer.steps(), kSaved);
        train(reducer, net, communicator.rank(), kLast);
      });
    }
  }
}

/// Back in the same process, to what one rank or three have saved: what this run has not sent is none of it.
TEST(HookState, WhatTheRunBeforeHasLeftIsNoneOfAnotherNumberOfRanks) {
  for (const Case& hook : kCases) {
    for (const int before : {1, 3}) {
      SCOPED_TRACE(hook.name + std::string(" from ") + std::to_string(before));
      const Directory directory;
      train_and_save(before, hook, directory.checkpoint());
      on_ranks(2, "auto", [&](Communicator& communicator) {
        Net fresh, rolled_back;
        Reducer expected(communicator, fresh.list, options_of(hook));
        load(communicator, expected, fresh, directory.checkpoint());
        Reducer reducer(communicator, rolled_back.list, options_of(hook));
        train(reducer, rolled_back, communicator.rank(), kLast);
        load(communicator, reducer, rolled_back, directory.checkpoint());
        EXPECT_EQ(waiting(communicator, reducer), waiting(communicator, expected));
        train(reducer, rolled_back, communicator.rank(), kLast);
        const auto left = waiting(communicator, reducer);
        reducer.restored(reducer.steps());  // Nothing was loaded.
        EXPECT_EQ(waiting(communicator, reducer), left);
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

TEST(HookState, OfAnotherNumberOfRanksNeedsItsInfo) {
  for (const auto& [before, after] : {std::pair{2, 3}, std::pair{2, 1}, std::pair{1, 2}}) {
    const Directory directory;
    train_and_save(before, kCases[0], directory.checkpoint());
    on_ranks(after, "auto", [&](Communicator& communicator) {
      Net net;
      Reducer reducer(communicator, net.list, options_of(kCases[0]));
      std::vector<TensorSlice> slices = slices_to_load(net.list);
      append(slices, reducer.slices());
      const std::string text =
          thrown_by([&] { load_checkpoint(communicator, directory.checkpoint(), slices); }).what();
      EXPECT_NE(text.find("load slices(read_checkpoint_info(directory))"), std::string::npos) << text;
      slices.front().name = "matrix of another model";
      const std::string other =
          thrown_by([&] { load_checkpoint(communicator, directory.checkpoint(), slices); }).what();
      EXPECT_EQ(other.find("slices("), std::string::npos) << other;
    });
  }
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

/// Frozen parameters send nothing; what waits for them waits on.
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
    });
  }
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
