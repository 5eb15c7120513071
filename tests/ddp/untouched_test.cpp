// Every bad use of a step, with gradients as views and kept by the caller, with a Reducer and with both
// stages of a ShardedOptimizer: one error on every rank, gradients as they were to the last bit, and the same
// gradients make a good step afterwards.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "lockstep/ddp.hpp"
#include "tests/ddp/model.hpp"
#include "tests/ddp/numbers.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

constexpr int kRanks = 3;
constexpr int kCulprit = 1;
constexpr std::size_t kTensors = 12;

struct Way {
  int zero = 0;
  bool views = true;
  bool hook = false;
  bool weighted = false;
  bool check_first = false;

  std::string name() const {
    return (zero == 0 ? std::string("reducer") : "zero " + std::to_string(zero)) + (views ? " views" : "") +
           (hook ? " hook" : "") + (weighted ? " weighted" : "") + (check_first ? " check_first" : "");
  }
};

std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const int zero : {0, 1, 2}) {
    for (unsigned bits = 0; bits < 16; ++bits) {
      const Way way{zero, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
      if (zero == 0 || way.views == (zero == 1)) ways.push_back(way);  // What a stage's gradients are.
    }
  }
  return ways;
}

/// All_reduce with a result of its own, which is too small as often as it is told.
struct Hook {
  std::vector<std::vector<float>> results = std::vector<std::vector<float>>(100);
  std::size_t lacking = 0;

  std::shared_ptr<CommunicationHook> make() {
    return make_hook("elsewhere", [this](Communicator& c, const GradientBucket& bucket) {
      std::vector<float>& result = results[bucket.index];
      result.resize(bucket.count);
      Work work = c.all_reduce_async(bucket.data, result.data(), bucket.count, bucket.type, bucket.op());
      return HookResult{std::move(work), result.data(), bucket.count - (bucket.index == 1 ? lacking : 0)};
    });
  }
};

template <typename Options>
Options options_of(const Way& way, Hook& hook) {
  Options options;
  options.bucket_bytes = 4'000;
  options.first_bucket_bytes = 1'000;
  options.weighted = way.weighted;
  options.check_first = way.check_first;
  options.check_finite = true;
  if (way.hook) options.hook = hook.make();
  return options;
}

Reducer make(Reducer*, Communicator& communicator, Model& model, const Way& way, Hook& hook) {
  auto options = options_of<ReducerOptions>(way, hook);
  options.gradients_as_views = way.views;
  return Reducer(communicator, model.list(options), options);
}

/// Gradient descent at a rate of 1: what a step takes away from the values is the gradient.
ShardedOptimizer make(ShardedOptimizer*, Communicator& communicator, Model& model, const Way& way,
                      Hook& hook) {
  auto options = options_of<ShardedOptions>(way, hook);
  options.stage = static_cast<ZeroStage>(way.zero);
  return ShardedOptimizer(communicator, model.list(options.stage), std::make_shared<SgdMomentum>(1.0, 0.0),
                          options);
}

/// One rank's trainer, whose gradients have random bits.
template <typename Trainer>
class Trial {
 public:
  Trial(Communicator& communicator, const Way& way)
      : communicator_(communicator),
        way_(way),
        model_(kTensors, 1),
        trainer_(make(static_cast<Trainer*>(nullptr), communicator, model_, way, hook_)) {
    for (int r = 0; r < kRanks; ++r) {
      std::mt19937 random(static_cast<unsigned>(r));
      std::uniform_real_distribution<float> number(-1, 1);
      gradients_.emplace_back();
      for (std::size_t i = 0; i < kTensors; ++i) {
        gradients_[r].emplace_back(model_.elements(i));
        for (float& g : gradients_[r].back()) g = number(random);
      }
    }
    for (std::size_t i = 0; i < kTensors; ++i) write(i);
  }

  Trainer& trainer() { return trainer_; }
  Hook& hook() { return hook_; }
  bool culprit() const { return communicator_.rank() == kCulprit; }
  float* gradient(std::size_t i) { return static_cast<float*>(trainer_.gradient(i)); }
  void write(std::size_t i) {
    const auto& from = gradients_[static_cast<std::size_t>(communicator_.rank())][i];
    if (!from.empty()) std::memcpy(gradient(i), from.data(), from.size() * sizeof(float));
  }

  void begin() {
    if (way_.weighted) {
      ASSERT_TRUE(trainer_.begin_step(samples(communicator_.rank())));
    }
  }
  void mark_from(std::size_t first) {
    for (std::size_t i = kTensors; i-- > first;) trainer_.mark_ready(i);
  }

  /// A step whose marks `mark` makes: it fails with `text` everywhere and leaves gradients as they were.
  template <typename Mark>
  void fail(const std::string& text, Mark mark) {
    begin();
    std::vector<std::vector<float>> before;
    for (std::size_t i = 0; i < kTensors; ++i)
      before.emplace_back(gradient(i), gradient(i) + model_.elements(i));
    mark();
    const Error error = thrown_by([&] { trainer_.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.culprit(), kCulprit);
    EXPECT_EQ(std::string(error.what()).rfind("gradients of step 1: rank 1 " + text, 0), 0u) << error.what();
    for (std::size_t i = 0; i < kTensors; ++i) {
      if (before[i].empty()) continue;
      ASSERT_EQ(std::memcmp(before[i].data(), gradient(i), before[i].size() * sizeof(float)), 0) << i;
    }
  }

  /// The gradients that a failed step has left make this one.
  void succeed() {
    begin();
    mark_from(0);
    trainer_.wait();
    constexpr bool kSharded = std::is_same_v<Trainer, ShardedOptimizer>;
    if constexpr (kSharded) {
      trainer_.step();
      trainer_.wait_parameters();
    }
    for (std::size_t i = 0; i < kTensors; ++i) {
      for (std::size_t e = 0; e < model_.elements(i); ++e) {
        ASSERT_NEAR(kSharded ? -model_.values(i)[e] : gradient(i)[e], average(i, e), 1e-6) << i << " " << e;
      }
    }
  }

 private:
  static std::uint64_t samples(int rank) { return 1 + static_cast<std::uint64_t>(rank); }
  double average(std::size_t i, std::size_t e) const {
    double sum = 0, weights = 0;
    for (int r = 0; r < kRanks; ++r) {
      const double weight = way_.weighted ? static_cast<double>(samples(r)) : 1;
      sum += weight * gradients_[static_cast<std::size_t>(r)][i][e];
      weights += weight;
    }
    return sum / weights;
  }

  Communicator& communicator_;
  const Way way_;
  Hook hook_;
  Model model_;
  Trainer trainer_;
  std::vector<std::vector<std::vector<float>>> gradients_;  // Of each rank and tensor.
};

template <typename Trainer>
void expect_survival(Communicator& communicator, const Way& way) {
  Trial<Trainer> run(communicator, way);
  Trainer& trainer = run.trainer();
  run.fail("marked \"tensor2\" (2) once too often", [&] {
    run.mark_from(0);
    if (!run.culprit()) return;
    const Error error = thrown_by([&] { trainer.mark_ready(2); });
    EXPECT_NE(std::string(error.what()).find("was already marked in step 1"), std::string::npos);
  });
  run.fail("did not mark 1 of 12 gradients: \"tensor0\" (0)", [&] { run.mark_from(run.culprit() ? 1 : 0); });
  run.fail("did not mark 5 of 12 gradients: \"tensor0\" (0), ",
           [&] { run.mark_from(run.culprit() ? 5 : 0); });
  run.fail("did not mark 12 of 12 gradients: \"tensor0\" (0), ",
           [&] { run.mark_from(run.culprit() ? kTensors : 0); });
  if (run.culprit()) run.gradient(4)[0] = std::numeric_limits<float>::quiet_NaN();
  run.fail("has an infinity or a NaN in the gradient of \"tensor4\" (4)", [&] { run.mark_from(0); });
  run.write(4);
  if (way.hook) {
    run.hook().lacking = run.culprit() ? 1 : 0;
    const std::size_t left = trainer.plan().buckets[1].count - 1;
    run.fail("got " + std::to_string(left) + " elements from its hook for bucket 1; a hook's result has",
             [&] { run.mark_from(0); });
    run.hook().lacking = 0;
  }
  run.succeed();
}

TEST(Untouched, GradientsSurviveEveryBadUseAndMakeTheNextStep) {
  for (const Way& way : all_ways()) {
    SCOPED_TRACE(way.name());
    on_ranks(kRanks, way.hook ? "tcp" : "shm", [&](Communicator& communicator) {
      if (way.zero == 0) return expect_survival<Reducer>(communicator, way);
      expect_survival<ShardedOptimizer>(communicator, way);
    });
    if (::testing::Test::HasFailure()) return;
  }
}

/// What a failed collective leaves is as little to be lost: here a peer gives up when some buckets are
/// reduced.
TEST(Untouched, GradientsSurviveALostGroup) {
  for (const bool hook : {false, true}) {
    on_ranks(kRanks, "auto", [&](Communicator& communicator) {
      Trial<Reducer> run(communicator, {.hook = hook});
      if (run.culprit()) {
        run.mark_from(6);
        communicator.abort("out of coffee");
        return;
      }
      run.mark_from(0);
      EXPECT_EQ(thrown_by([&] { run.trainer().wait(); }).code(), ErrorCode::aborted);
      std::vector<float> now;
      for (std::size_t i = 0; i < kTensors; ++i) now.insert(now.end(), run.gradient(i), run.gradient(i) + 1);
      for (std::size_t i = 0; i < kTensors; ++i) run.write(i);
      for (std::size_t i = 0; i < kTensors; ++i) EXPECT_EQ(now[i], run.gradient(i)[0]) << i;
    });
  }
}

/// Alone only what becomes zero is kept, and for its own step.
TEST(Untouched, WhatAGoodStepHasReplacedDoesNotComeBack) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 2, {.find_unused = true, .check_first = false, .check_finite = true});
    numbers.gradient(0) = 7;
    numbers.mark(1);
    numbers.reducer().wait();
    numbers.expect(0, 0);
    numbers.reducer().wait();
    EXPECT_GT(numbers.reducer().undo_bytes(), BucketPlan::kAlignment) << "up to the end of the last one";
    numbers.mark(0);
    numbers.gradient(1) = std::nanf("");
    numbers.reducer().mark_ready(1);
    thrown_by([&] { numbers.reducer().wait(); });
    numbers.expect(0, 1);
    EXPECT_TRUE(std::isnan(numbers.gradient(1)));
  });
}

TEST(Untouched, GradientsOfParametersThatJoinedSurviveToo) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    std::vector<float> few(10), many(1u << 20);
    const Parameter first{"few", DataType::f32, {few.size()}, few.data(), nullptr};
    const Parameter second{"many", DataType::f32, {many.size()}, many.data(), nullptr};
    Reducer reducer(communicator, {&first, 1}, {.check_first = false, .check_finite = true});
    reducer.add_parameters({&second, 1});
    const auto mine = static_cast<float>(communicator.rank() + 1);
    auto* const gradient = static_cast<float*>(reducer.gradient(1));
    std::fill_n(gradient, many.size(), mine);
    static_cast<float*>(reducer.gradient(0))[3] = std::nanf("");
    reducer.mark_ready(1);
    reducer.mark_ready(0);
    thrown_by([&] { reducer.wait(); });
    for (std::size_t e = 0; e < many.size(); ++e) ASSERT_EQ(gradient[e], mine) << e;
    EXPECT_GE(reducer.undo_bytes(), many.size() * sizeof(float));
  });
}

TEST(Untouched, CostsMemoryOnlyWhereItIsWanted) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(kTensors, 1);
    const auto bytes_with = [&](const ReducerOptions& options) {
      Reducer reducer(communicator, model.list(options), options);
      for (std::size_t i = 0; i < kTensors; ++i) reducer.mark_ready(i);
      reducer.wait();
      return reducer.undo_bytes();
    };
    std::size_t gradients = 0;
    for (std::size_t i = 0; i < kTensors; ++i) gradients += model.elements(i) * sizeof(float);
    EXPECT_GE(bytes_with({.check_first = false}), gradients);
    EXPECT_EQ(bytes_with({.undo = false}), 0u);
    EXPECT_EQ(bytes_with({.check_first = true}), 0u);
    EXPECT_EQ(bytes_with({.gradients_as_views = false}), 0u);
  });
}

}  // namespace
}  // namespace lockstep
