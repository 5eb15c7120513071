// What a hook keeps between steps, on another number of ranks: nothing that was not sent yet is lost.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/ddp/hooks/hook_state_cases.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

void expect_nothing_lost(const Case& hook, int before, int after, bool weighted) {
  SCOPED_TRACE(hook.name + std::string(" from ") + std::to_string(before) + (weighted ? ", weighted" : ""));
  const Directory directory;
  const std::uint64_t samples = weighted ? 8 : 0;
  std::map<std::string, std::vector<double>> expected;
  on_ranks(before, "auto", [&](Communicator& communicator) {
    Net net;
    Reducer reducer(communicator, net.list, options_of(hook, weighted));
    train(reducer, net, communicator.rank(), kSaved, samples);
    save(communicator, reducer, net, directory.checkpoint());
    auto mine = waiting(communicator, reducer);
    if (communicator.rank() == 0) expected = std::move(mine);
  });
  // Weighted, all that waits enters the average as it is: it is the sum that counts.
  const double factor = weighted ? static_cast<double>(before) / after : 1;
  on_ranks(after, "auto", [&](Communicator& communicator) {
    Net net;
    Reducer reducer(communicator, net.list, options_of(hook, weighted));
    read(communicator, reducer, net, directory.checkpoint());  // Of which nothing comes.
    load(communicator, reducer, net, directory.checkpoint());
    const auto found = waiting(communicator, reducer);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [name, sum] : expected) {
      for (std::size_t i = 0; i < sum.size(); ++i)
        ASSERT_NEAR(found.at(name)[i], sum[i] * factor, 1e-6) << name << " " << i;
    }
    train(reducer, net, communicator.rank(), kLast, samples);
  });
}

TEST(HookState, OnAnotherNumberOfRanksNothingThatWaitsIsLost) {
  for (const Case& hook : kCases) {
    for (const auto& [before, after] : {std::pair{2, 3}, std::pair{3, 2}, std::pair{4, 2}})
      expect_nothing_lost(hook, before, after, false);
    if (hook.keeps) expect_nothing_lost(hook, 3, 2, true);
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
        Reducer reducer(communicator, net.list, options_of(hook, true));
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

}  // namespace
}  // namespace lockstep
