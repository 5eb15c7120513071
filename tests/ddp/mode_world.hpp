// A training run in which every mode of the reducer can be on or off, and what one process alone would
// compute for it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <type_traits>
#include <vector>

#include "ddp/gradient_math.hpp"
#include "lockstep/ddp/sharded_optimizer.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep {

struct Modes {
  bool accumulation = false;  ///< Two micro-batches a step, the first under no_sync.
  bool unused = false;        ///< Each rank leaves out gradients of its own, other ones in every batch.
  bool uneven = false;        ///< Rank r has data for kSteps - r steps.
  bool hook = false;          ///< All_reduce through a hook.
  bool views = true;
  bool clipping = false;
  bool check_first = false;
  bool overlap_forward = false;  ///< The next step waits for gradients one by one.
  int zero = 0;                  ///< 1 and 2: a ShardedOptimizer of that stage.

  std::string name() const {
    std::string text;
    const auto add = [&](bool on, const char* word) { text += on ? std::string(word) + " " : ""; };
    add(accumulation, "accumulation"), add(unused, "unused"), add(uneven, "uneven"), add(hook, "hook");
    add(views, "views"), add(clipping, "clipping"), add(check_first, "check_first");
    add(overlap_forward, "overlap_forward");
    return text + "zero " + std::to_string(zero);
  }
};

constexpr std::size_t kSteps = 4;
constexpr double kMaxNorm = 50;

/// What the ranks do, as pure functions: the test runs them, and the expectation adds them up.
class Schedule {
 public:
  Schedule(const Modes& modes, int ranks) : modes_(modes), ranks_(ranks) {}

  std::size_t batches() const { return modes_.accumulation ? 2 : 1; }
  bool has_data(int rank, std::size_t step) const {
    return !modes_.uneven || step + static_cast<std::size_t>(rank) < kSteps;
  }
  /// Tensor 0 is used by nobody, tensor 1 by rank 0 only.
  bool uses(int rank, std::size_t step, std::size_t batch, std::size_t tensor) const {
    if (!modes_.unused) return true;
    if (tensor == 0) return false;
    if (tensor == 1) return rank == 0;
    return (tensor * 7 + step * 3 + batch * 5 + static_cast<std::size_t>(rank)) % 3 != 0;
  }
  float value(int rank, std::size_t step, std::size_t batch, std::size_t tensor, std::size_t e) const {
    return local_gradient(rank, 2 * step + batch, tensor, e);
  }
  bool any_uses(std::size_t step, std::size_t tensor) const {
    for (int r = 0; r < ranks_; ++r) {
      for (std::size_t b = 0; b < batches(); ++b) {
        if (has_data(r, step) && uses(r, step, b, tensor)) return true;
      }
    }
    return false;
  }
  /// The average over all ranks, before clipping.
  double average(std::size_t step, std::size_t tensor, std::size_t e) const {
    double sum = 0;
    for (int r = 0; r < ranks_; ++r) {
      for (std::size_t b = 0; b < batches(); ++b) {
        if (has_data(r, step) && uses(r, step, b, tensor)) sum += value(r, step, b, tensor, e);
      }
    }
    return sum / ranks_;
  }

 private:
  const Modes modes_;
  const int ranks_;
};

/// Equal bits on all ranks of what `data(i)` points to.
template <typename Data>
void expect_equal_bits(Communicator& communicator, const Model& model, Data data) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    hash = hash * 31 + internal::hash_bytes(data(i), model.elements(i) * sizeof(float));
  }
  std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(&hash, all.data(), 1, DataType::u64);
  for (const std::uint64_t other : all) ASSERT_EQ(other, hash);
}

inline std::shared_ptr<CommunicationHook> all_reduce_hook() {
  return make_hook("all_reduce", [](Communicator& c, const GradientBucket& b) {
    return HookResult{c.all_reduce_async(b.data, b.data, b.count, b.type, b.op())};
  });
}

inline Reducer make_trainer(Reducer*, Communicator& communicator, Model& model, const Modes& modes) {
  ReducerOptions options{.bucket_bytes = 8'000, .first_bucket_bytes = 2'000};
  options.gradients_as_views = modes.views;
  options.find_unused = modes.unused;
  options.check_first = modes.check_first;
  options.overlap_forward = modes.overlap_forward;
  if (modes.hook) options.hook = all_reduce_hook();
  return Reducer(communicator, model.list(options), options);
}

/// Gradient descent at a rate of 1: what a step takes away from the values is the gradient.
inline ShardedOptimizer make_trainer(ShardedOptimizer*, Communicator& communicator, Model& model,
                                     const Modes& modes) {
  ShardedOptions options{.bucket_bytes = 8'000, .first_bucket_bytes = 2'000};
  options.stage = static_cast<ZeroStage>(modes.zero);
  options.values_as_views = modes.views;
  options.find_unused = modes.unused;
  options.check_first = modes.check_first;
  if (modes.hook) options.hook = all_reduce_hook();
  return ShardedOptimizer(communicator, model.list(options.stage), std::make_shared<SgdMomentum>(1.0, 0.0),
                          options);
}

/// One rank's run, with a Reducer or a ShardedOptimizer.
template <typename Trainer>
class ModeRun {
 public:
  ModeRun(Communicator& communicator, const Modes& modes)
      : communicator_(communicator),
        modes_(modes),
        schedule_(modes, communicator.size()),
        model_(14, 3),
        trainer_(make_trainer(static_cast<Trainer*>(nullptr), communicator, model_, modes)),
        random_(static_cast<unsigned>(communicator.rank())) {
    for (std::size_t i = 0; i < model_.tensors(); ++i) expected_.emplace_back(model_.elements(i));
  }

  void run() {
    for (std::size_t step = 0; step < kSteps; ++step) {
      const bool data = schedule_.has_data(communicator_.rank(), step);
      if (modes_.uneven) {
        ASSERT_TRUE(trainer_.begin_step(data ? 4 : 0));
      }
      if (data) compute(step);
      trainer_.wait();
      check(step);
    }
    if (modes_.uneven) {
      EXPECT_FALSE(trainer_.begin_step(0));
    }
  }

 private:
  static constexpr bool kSharded = std::is_same_v<Trainer, ShardedOptimizer>;

  void compute(std::size_t step) {
    std::vector<bool> written(model_.tensors());
    for (std::size_t batch = 0; batch < schedule_.batches(); ++batch) {
      if (batch + 1 < schedule_.batches()) {
        const auto pause = trainer_.no_sync();
        backward(step, batch, written);
        trainer_.wait();  // Does nothing.
      } else {
        backward(step, batch, written);
      }
    }
  }

  void backward(std::size_t step, std::size_t batch, std::vector<bool>& written) {
    std::vector<std::size_t> order(model_.tensors());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    if constexpr (kSharded) trainer_.wait_parameters();
    const int rank = communicator_.rank();
    for (const std::size_t i : order) {
      if (!schedule_.uses(rank, step, batch, i)) {
        if (i % 2 == 0) trainer_.mark_unused(i);  // The others are found in wait().
        continue;
      }
      auto* gradient = static_cast<float*>(trainer_.gradient(i));
      for (std::size_t e = 0; e < model_.elements(i); ++e) {
        const float value = schedule_.value(rank, step, batch, i, e);
        gradient[e] = written[i] ? gradient[e] + value : value;
      }
      written[i] = true;
      trainer_.mark_ready(i);
    }
  }

  void check(std::size_t step) {
    double squared = 0;
    for (std::size_t i = 0; i < model_.tensors(); ++i) {
      EXPECT_EQ(trainer_.used(i), schedule_.any_uses(step, i) || !modes_.unused) << "tensor " << i;
      for (std::size_t e = 0; e < model_.elements(i); ++e) {
        const double average = schedule_.average(step, i, e);
        squared += average * average;
      }
    }
    if constexpr (!kSharded) {  // Clipping waits for all by itself.
      for (std::size_t i = 0; modes_.overlap_forward && !modes_.clipping && i < model_.tensors(); ++i)
        trainer_.wait_gradients(i);
    }
    double factor = 1;
    if (modes_.clipping) {
      const double norm = trainer_.clip_gradients(kMaxNorm);
      EXPECT_NEAR(norm, std::sqrt(squared), 1e-3 * norm);
      factor = std::min(1.0, kMaxNorm / std::sqrt(squared));
    }
    if constexpr (kSharded) {
      trainer_.step();
      // A rank without data does not look at its values before the end.
      const bool looks = step + 1 == kSteps || schedule_.has_data(communicator_.rank(), step + 1);
      if (looks) trainer_.wait_parameters();
    }
    for (std::size_t i = 0; i < model_.tensors(); ++i) {
      for (std::size_t e = 0; e < model_.elements(i); ++e) {
        const double gradient = factor * schedule_.average(step, i, e);
        expected_[i][e] = kSharded ? expected_[i][e] - gradient : gradient;
      }
    }
    if (!kSharded || step + 1 == kSteps) expect_result(step);
  }

  void expect_result(std::size_t step) {
    const auto result = [&](std::size_t i) {
      if constexpr (kSharded) return static_cast<const float*>(trainer_.value(i));
      if constexpr (!kSharded) return static_cast<const float*>(trainer_.gradient(i));
    };
    for (std::size_t i = 0; i < model_.tensors(); ++i) {
      for (std::size_t e = 0; e < model_.elements(i); ++e) {
        const double expected = expected_[i][e];
        ASSERT_NEAR(result(i)[e], expected, 1e-4 * (1 + std::abs(expected)))
            << "step " << step << ", tensor " << i << ", element " << e;
      }
    }
    expect_equal_bits(communicator_, model_, result);
  }

  Communicator& communicator_;
  const Modes modes_;
  const Schedule schedule_;
  Model model_;
  Trainer trainer_;
  std::vector<std::vector<double>> expected_;  // Gradients, or the values after some steps.
  std::mt19937 random_;
};

}  // namespace lockstep
