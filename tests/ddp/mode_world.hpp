// A training run in which every mode of the reducer can be on or off, and what one process alone would
// compute for it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "ddp/gradient_math.hpp"
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

  std::string name() const {
    std::string text;
    const auto add = [&](bool on, const char* word) { text += on ? std::string(word) + " " : ""; };
    add(accumulation, "accumulation"), add(unused, "unused"), add(uneven, "uneven"), add(hook, "hook");
    add(views, "views"), add(clipping, "clipping"), add(check_first, "check_first");
    return text;
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

/// Equal bits on all ranks.
inline void expect_equal_bits(Communicator& communicator, const Reducer& reducer, const Model& model) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    hash = hash * 31 + internal::hash_bytes(reducer.gradient(i), model.elements(i) * sizeof(float));
  }
  std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(&hash, all.data(), 1, DataType::u64);
  for (const std::uint64_t other : all) ASSERT_EQ(other, hash);
}

/// One rank's run.
class ModeRun {
 public:
  ModeRun(Communicator& communicator, const Modes& modes)
      : communicator_(communicator),
        modes_(modes),
        schedule_(modes, communicator.size()),
        model_(14, 3),
        reducer_(communicator, model_.list(), options(modes)),
        random_(static_cast<unsigned>(communicator.rank())) {}

  void run() {
    for (std::size_t step = 0; step < kSteps; ++step) {
      const bool data = schedule_.has_data(communicator_.rank(), step);
      if (modes_.uneven) {
        ASSERT_TRUE(reducer_.begin_step(data ? 4 : 0));
      }
      if (data) compute(step);
      reducer_.wait();
      check(step);
    }
    if (modes_.uneven) {
      EXPECT_FALSE(reducer_.begin_step(0));
    }
  }

 private:
  static ReducerOptions options(const Modes& modes) {
    ReducerOptions o{.bucket_bytes = 8'000, .first_bucket_bytes = 2'000};
    o.gradients_as_views = modes.views;
    o.find_unused = modes.unused;
    o.check_first = modes.check_first;
    if (modes.hook) {
      o.hook = make_hook("all_reduce", [](Communicator& c, const GradientBucket& b) {
        return HookResult{c.all_reduce_async(b.data, b.data, b.count, b.type, b.op())};
      });
    }
    return o;
  }

  void compute(std::size_t step) {
    std::vector<bool> written(model_.tensors());
    for (std::size_t batch = 0; batch < schedule_.batches(); ++batch) {
      if (batch + 1 < schedule_.batches()) {
        const auto pause = reducer_.no_sync();
        backward(step, batch, written);
        reducer_.wait();  // Does nothing.
      } else {
        backward(step, batch, written);
      }
    }
  }

  void backward(std::size_t step, std::size_t batch, std::vector<bool>& written) {
    std::vector<std::size_t> order(model_.tensors());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    const int rank = communicator_.rank();
    for (const std::size_t i : order) {
      if (!schedule_.uses(rank, step, batch, i)) {
        if (i % 2 == 0) reducer_.mark_unused(i);  // The others are found in wait().
        continue;
      }
      auto* gradient = static_cast<float*>(reducer_.gradient(i));
      for (std::size_t e = 0; e < model_.elements(i); ++e) {
        const float value = schedule_.value(rank, step, batch, i, e);
        gradient[e] = written[i] ? gradient[e] + value : value;
      }
      written[i] = true;
      reducer_.mark_ready(i);
    }
  }

  void check(std::size_t step) {
    double squared = 0;
    for (std::size_t i = 0; i < model_.tensors(); ++i) {
      EXPECT_EQ(reducer_.used(i), schedule_.any_uses(step, i) || !modes_.unused) << "tensor " << i;
      for (std::size_t e = 0; e < model_.elements(i); ++e) {
        squared += std::pow(schedule_.average(step, i, e), 2);
      }
    }
    double factor = 1;
    if (modes_.clipping) {
      const double norm = reducer_.clip_gradients(kMaxNorm);
      EXPECT_NEAR(norm, std::sqrt(squared), 1e-3 * norm);
      factor = std::min(1.0, kMaxNorm / std::sqrt(squared));
    }
    for (std::size_t i = 0; i < model_.tensors(); ++i) {
      const auto* gradient = static_cast<const float*>(reducer_.gradient(i));
      for (std::size_t e = 0; e < model_.elements(i); ++e) {
        const double expected = factor * schedule_.average(step, i, e);
        ASSERT_NEAR(gradient[e], expected, 1e-4 * (1 + std::abs(expected)))
            << "step " << step << ", tensor " << i << ", element " << e;
      }
    }
    expect_equal_bits(communicator_, reducer_, model_);
  }

  Communicator& communicator_;
  const Modes modes_;
  const Schedule schedule_;
  Model model_;
  Reducer reducer_;
  std::mt19937 random_;
};

}  // namespace lockstep
