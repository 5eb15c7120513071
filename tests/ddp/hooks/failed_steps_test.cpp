// Steps that fail leave no trace in what a hook keeps: a run in which every step is tried in vain several
// times, for every reason, has the bits of one in which nothing failed. With all hooks, with a Reducer and
// with both stages of a ShardedOptimizer.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "lockstep/ddp.hpp"
#include "tests/ddp/hooks/every_hook.hpp"
#include "tests/ddp/hooks/net.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

constexpr std::uint64_t kSteps = 6;
constexpr int kCulprit = 1;

/// All buckets go through a hook that comes with the library, but for one, whose function gives back too
/// little when it is told.
class WithOneOdd final : public CommunicationHook {
 public:
  explicit WithOneOdd(std::shared_ptr<CommunicationHook> inner) : inner_(std::move(inner)) {}
  bool lacks = false;

  std::string name() const override { return "one odd beside " + inner_->name(); }
  bool wants_whole_gradients() const override { return inner_->wants_whole_gradients(); }
  void attach(Communicator& communicator, const BucketPlan& plan,
              std::span<const Parameter> parameters) override {
    inner_->attach(communicator, plan, parameters);
    odd_->attach(communicator, plan, parameters);
  }
  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    return of(bucket).start(communicator, bucket);
  }
  void finish(const GradientBucket& bucket) override { of(bucket).finish(bucket); }
  void end_step(bool good) override { inner_->end_step(good); }
  std::vector<HookTensor> state() override { return inner_->state(); }
  std::uint64_t bytes_on_wire() const override { return inner_->bytes_on_wire(); }

 private:
  CommunicationHook& of(const GradientBucket& bucket) { return bucket.index == 1 ? *odd_ : *inner_; }

  std::shared_ptr<CommunicationHook> inner_;
  std::shared_ptr<CommunicationHook> odd_ =
      make_hook("odd", [this](Communicator& communicator, const GradientBucket& b) {
        Work work = communicator.all_reduce_async(b.data, b.data, b.count, b.type, b.op());
        return HookResult{std::move(work), b.data, b.count - (lacks ? 1 : 0)};
      });
};

/// A user's: sends every other element, keeps the rest for the next step, and says so.
class EveryOther final : public CommunicationHook {
 public:
  std::string name() const override { return "every other"; }
  void attach(Communicator&, const BucketPlan& plan, std::span<const Parameter> parameters) override {
    plan_ = &plan, parameters_ = parameters;
    kept_.clear();
    for (const auto& bucket : plan.buckets) kept_.emplace_back(bucket.count);
    next_ = kept_;
  }
  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    auto* data = static_cast<float*>(bucket.data);
    for (std::size_t i = 0; i < bucket.count; ++i) {
      next_[bucket.index][i] = kept_[bucket.index][i] + data[i];
      data[i] = (i + bucket.step) % 2 == 0 ? std::exchange(next_[bucket.index][i], 0.0f) : 0.0f;
    }
    return communicator.all_reduce_async(data, data, bucket.count, bucket.type, bucket.op());
  }
  void end_step(bool good) override {
    if (good) kept_ = next_;
  }
  std::vector<HookTensor> state() override {
    std::vector<HookTensor> list;
    for (std::size_t b = 0; b < kept_.size(); ++b) {
      for (const GradientPart& part : plan_->buckets[b].parts) {
        const Parameter& p = parameters_[part.parameter];
        list.push_back(
            {{p.name + "#residual", p.type, p.shape, part.first, part.count, kept_[b].data() + part.offset}});
      }
    }
    return list;
  }
  std::uint64_t bytes_on_wire() const override { return 0; }

 private:
  const BucketPlan* plan_ = nullptr;
  std::span<const Parameter> parameters_;
  std::vector<std::vector<float>> kept_, next_;
};

struct Case {
  const char* name;
  std::shared_ptr<CommunicationHook> (*make)();
};
constexpr Case kCases[] = {
    {"bf16", [] { return make_half_hook(); }},
    {"f16", [] { return make_half_hook(DataType::f16); }},
    {"i8", [] { return make_quantised_hook(); }},
    {"i8 that forgets", [] { return make_quantised_hook({.error_feedback = false}); }},
    {"f8e4m3", [] { return make_quantised_hook({.type = DataType::f8e4m3, .block = 64}); }},
    {"f8e5m2", [] { return make_quantised_hook({.type = DataType::f8e5m2}); }},
    {"top_k", [] { return make_top_k_hook({.share = 0.05}); }},
    {"powersgd", [] { return make_power_sgd_hook({.rank = 2, .start_step = 1}); }},
    {"powersgd later", [] { return make_power_sgd_hook({.rank = 2, .start_step = 3}); }},
    {"powersgd cold", [] { return make_power_sgd_hook({.rank = 2, .start_step = 2, .warm_start = false}); }},
    {"powersgd that forgets",
     [] { return make_power_sgd_hook({.rank = 2, .start_step = 2, .error_feedback = false}); }},
    {"a user's", []() -> std::shared_ptr<CommunicationHook> { return std::make_shared<EveryOther>(); }},
};

enum class Fault { marked_twice, not_marked, nothing_marked, not_finite, wrong_size, none };

Reducer make(Reducer*, Communicator& communicator, Net& net, std::shared_ptr<CommunicationHook> hook) {
  ReducerOptions options{.bucket_bytes = 8'192, .first_bucket_bytes = 2'000};
  options.check_finite = true;
  options.hook = std::move(hook);
  return Reducer(communicator, net.list, options);
}

template <ZeroStage kStage>
struct Sharded : ShardedOptimizer {
  using ShardedOptimizer::ShardedOptimizer;
};

template <ZeroStage kStage>
Sharded<kStage> make(Sharded<kStage>*, Communicator& communicator, Net& net,
                     std::shared_ptr<CommunicationHook> hook) {
  ShardedOptions options{.bucket_bytes = 8'192, .first_bucket_bytes = 2'000, .stage = kStage};
  options.check_finite = true;
  options.hook = std::move(hook);
  const auto list = kStage == ZeroStage::gradients ? net.list_with_gradients() : net.list;
  return Sharded<kStage>(communicator, list, std::make_shared<SgdMomentum>(0.1), options);
}

template <typename Trainer>
class Trial {
 public:
  Trial(Communicator& communicator, const Case& hook)
      : culprit_(communicator.rank() == kCulprit),
        rank_(communicator.rank()),
        hook_(std::make_shared<WithOneOdd>(hook.make())),
        trainer_(make(static_cast<Trainer*>(nullptr), communicator, net_, hook_)) {}

  /// Backward. The odd one of the ranks does what it should not.
  void mark(Fault fault) {
    for (std::size_t i = net_.list.size(); i-- > 0;) {
      auto* gradient = static_cast<float*>(trainer_.gradient(i));
      for (std::size_t e = 0; e < net_.values[i].size(); ++e)
        gradient[e] = net_.gradient(i, e, rank_, trainer_.steps());
    }
    hook_->lacks = culprit_ && fault == Fault::wrong_size;
    const bool odd = culprit_ && fault != Fault::none;
    if (odd && fault == Fault::nothing_marked) return;
    if (odd && fault == Fault::not_finite)
      static_cast<float*>(trainer_.gradient(0))[7] = std::numeric_limits<float>::infinity();
    for (std::size_t i = net_.list.size(); i-- > 0;) {
      if (!odd || fault != Fault::not_marked || i != 0) trainer_.mark_ready(i);
    }
    if (odd && fault == Fault::marked_twice) thrown_by([&] { trainer_.mark_ready(2); });
  }

  void fail(Fault fault) {
    mark(fault);
    const Error error = thrown_by([&] { trainer_.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(error.culprit(), kCulprit) << error.what();
  }

  void step() {
    mark(Fault::none);
    trainer_.wait();
    if constexpr (std::is_same_v<Trainer, Reducer>) {
      for (std::size_t i = 0; i < net_.list.size(); ++i) {
        const auto* gradient = static_cast<const float*>(trainer_.gradient(i));
        for (std::size_t e = 0; e < net_.values[i].size(); ++e) net_.values[i][e] -= 0.1f * gradient[e];
      }
    } else {
      trainer_.step();
      trainer_.wait_parameters();
    }
  }

  void wait() { trainer_.wait(); }
  std::vector<float> values() const { return net_.all(); }
  std::map<std::string, std::vector<float>> kept() {
    std::map<std::string, std::vector<float>> all;
    for (const TensorSlice& slice : trainer_.slices()) {
      const auto* data = static_cast<const float*>(slice.data);
      all[slice.name + " " + std::to_string(slice.first)].assign(data, data + slice.count);
    }
    return all;
  }

 private:
  const bool culprit_;
  const int rank_;
  Net net_;
  std::shared_ptr<WithOneOdd> hook_;
  Trainer trainer_;
};

template <typename Trainer>
void expect_no_trace(int ranks) {
  for (const Case& hook : kCases) {
    SCOPED_TRACE(hook.name);
    on_ranks(ranks, "auto", [&](Communicator& communicator) {
      Trial<Trainer> calm(communicator, hook);
      for (std::uint64_t s = 0; s < kSteps; ++s) calm.step();
      Trial<Trainer> troubled(communicator, hook);
      for (std::uint64_t s = 0; s < kSteps; ++s) {
        const auto before = troubled.kept();
        for (int fault = 0; fault < static_cast<int>(Fault::none); ++fault) {
          troubled.fail(static_cast<Fault>(fault));
          ASSERT_EQ(troubled.kept(), before) << "fault " << fault;
        }
        troubled.step();
      }
      EXPECT_EQ(troubled.values(), calm.values());
      EXPECT_EQ(troubled.kept(), calm.kept());
    });
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(FailedSteps, AreTriedWithEveryHook) { testing::expect_row_of_every_hook(kCases); }

TEST(FailedSteps, LeaveNoTraceInAHookOfAReducer) {
  expect_no_trace<Reducer>(2);
  expect_no_trace<Reducer>(3);
}

TEST(FailedSteps, LeaveNoTraceInAHookOfAShardedOptimizer) {
  expect_no_trace<Sharded<ZeroStage::optimizer>>(3);
  expect_no_trace<Sharded<ZeroStage::gradients>>(3);
}

/// The parameters are averaged after good steps only, and as often as without failures.
TEST(FailedSteps, DoNotCountForLocalSgd) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    auto local = std::make_shared<LocalSgd>(LocalSgdOptions{.start_step = 2, .period = 3});
    Net net;
    Reducer reducer(communicator, net.list, {.hook = local});
    std::uint64_t averaged = 0;
    while (reducer.steps() < 10) {
      for (const bool good : {false, true}) {
        for (std::size_t i = good || communicator.rank() != kCulprit ? 0 : 1; i < net.list.size(); ++i)
          reducer.mark_ready(i);
        if (good) {
          reducer.wait();
        } else {
          thrown_by([&] { reducer.wait(); });
        }
        if (local->average_parameters()) averaged = averaged * 100 + reducer.steps() * (good ? 1 : 1000);
      }
    }
    EXPECT_EQ(averaged, 40710u);
  });
}

/// What a lost group leaves is that of the last good step as well: it can be saved.
TEST(FailedSteps, ALostGroupLeavesWhatTheHookKept) {
  for (const Case& hook : kCases) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      Trial<Reducer> trial(communicator, hook);
      for (int s = 0; s < 3; ++s) trial.step();
      const auto before = trial.kept();
      communicator.barrier();
      trial.mark(Fault::none);
      if (communicator.rank() == kCulprit) communicator.abort("out of coffee");
      try {
        trial.wait();  // The culprit's buckets may have ended before.
      } catch (const Error&) {
        EXPECT_EQ(trial.kept(), before);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
