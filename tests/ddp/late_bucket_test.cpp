// What becomes of a step whose buckets fail after wait(), or before it and nobody knows yet: with a carrier
// that fails as it is told to.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>

#include "tests/ddp/inside.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

struct Fate {
  std::optional<std::size_t> failing;  ///< The bucket that await() finds failed.
  bool never_began = false;            ///< A bucket that finish() tells of.
  int finished = 0;                    ///< How often.
};

constexpr float kSum = 777;

class FatedCarrier final : public internal::BucketCarrier {
 public:
  FatedCarrier(internal::StepClock& clock, Fate& fate) : clock_(clock), fate_(fate) {}
  void attach(const BucketPlan&, std::span<const Parameter>) override {}
  void start(const GradientBucket& bucket) noexcept override {
    std::fill_n(static_cast<float*>(bucket.data), bucket.count, kSum);
    clock_.bucket_done(bucket.index);
  }
  void await(std::size_t bucket) override {
    if (bucket == fate_.failing) throw Error(ErrorCode::peer_lost, "the wire was cut", 3);
  }
  bool failed() const override { return fate_.never_began; }
  std::optional<Error> finish() override {
    ++fate_.finished;
    if (!std::exchange(fate_.never_began, false)) return std::nullopt;
    return Error(ErrorCode::timeout, "too late", 2);
  }

 private:
  internal::StepClock& clock_;
  Fate& fate_;
};

/// Of one rank, its buckets on such a carrier.
void with_reducer(Fate& fate, bool views, const std::function<void(Reducer&, const Model&)>& body) {
  on_ranks(1, "auto", [&](Communicator& communicator) {
    Model model(20, 5);
    ReducerOptions options{.bucket_bytes = 8'000, .first_bucket_bytes = 2'000};
    options.overlap_forward = true;
    options.gradients_as_views = views;
    options.rebuild = false;
    Reducer reducer(communicator, model.list(options), options);
    ASSERT_GT(reducer.plan().buckets.size(), 2u);
    inside(reducer).carrier = std::make_unique<FatedCarrier>(inside(reducer).clock, fate);
    for (std::size_t i = model.tensors(); i-- > 0;) {
      write_gradient(reducer, model, i, 0, 0);
      reducer.mark_ready(i);
    }
    body(reducer, model);
  });
}

void expect_gradients(Reducer& reducer, const Model& model, std::size_t i, bool summed) {
  const auto* gradient = static_cast<const float*>(reducer.gradient(i));
  for (std::size_t e = 0; e < model.elements(i); ++e)
    ASSERT_EQ(gradient[e], summed ? kSum : local_gradient(0, 0, i, e)) << "tensor " << i;
}

TEST(LateBucket, ThatFailsIsToldToWhoWaitsForItAndToAllAfterwards) {
  Fate fate;
  fate.failing = 0;
  with_reducer(fate, false, [&](Reducer& reducer, const Model& model) {
    const std::size_t last = model.tensors() - 1;  // In bucket 0; the first is in the last one.
    reducer.wait();
    EXPECT_EQ(reducer.steps(), 1u);
    reducer.wait_gradients(0);
    expect_gradients(reducer, model, 0, true);
    EXPECT_EQ(fate.finished, 0);
    const Error failed = thrown_by([&] { reducer.wait_gradients(last); });
    EXPECT_EQ(failed.code(), ErrorCode::peer_lost);
    EXPECT_EQ(failed.culprit(), 3);
    EXPECT_STREQ(failed.what(), "gradients of step 1: the wire was cut");
    EXPECT_EQ(fate.finished, 1);  // Nothing runs on the buckets any more.
    const std::function<void()> later[] = {
        [&] { reducer.wait_gradients(last); }, [&] { reducer.wait_gradients(0); },
        [&] { reducer.wait_gradients(); },     [&] { static_cast<void>(reducer.begin_step(1)); },
        [&] { reducer.clip_gradients(1); },    [&] { reducer.restored(4); },
        [&] { reducer.freeze({}); },           [&] { const auto pause = reducer.no_sync(); }};
    for (const auto& call : later) {
      const Error again = thrown_by(call);
      EXPECT_EQ(again.code(), failed.code());
      EXPECT_STREQ(again.what(), failed.what());
    }
  });
}

TEST(LateBucket, ThatIsWaitedForWithAllEndsTheWaiting) {
  Fate fate;
  fate.failing = 1;
  with_reducer(fate, false, [&](Reducer& reducer, const Model&) {
    reducer.wait();
    EXPECT_STREQ(thrown_by([&] { reducer.wait_gradients(); }).what(),
                 "gradients of step 1: the wire was cut");
    EXPECT_EQ(fate.finished, 1);
  });
  EXPECT_EQ(fate.finished, 1);  // The end of the reducer has nothing to wait for.
}

TEST(LateBucket, ThatNeverBeganFailsTheStepAndGradientsAreAsTheyWere) {
  for (const bool views : {true, false}) {
    Fate fate;
    fate.never_began = true;
    with_reducer(fate, views, [&](Reducer& reducer, const Model& model) {
      const Error failed = thrown_by([&] { reducer.wait(); });
      EXPECT_EQ(failed.code(), ErrorCode::timeout);
      EXPECT_EQ(failed.culprit(), 2);
      EXPECT_STREQ(failed.what(), "gradients of step 1: too late");
      EXPECT_EQ(reducer.steps(), 0u);
      for (std::size_t i = 0; i < model.tensors(); ++i) expect_gradients(reducer, model, i, false);
      reducer.wait_gradients();  // Of no step.
    });
  }
}

TEST(LateBucket, IsAwaitedOnceAllAreWaitedForAndWhenTheReducerEnds) {
  Fate fate;
  with_reducer(fate, true, [&](Reducer& reducer, const Model& model) {
    reducer.wait();
    for (std::size_t i = 0; i < model.tensors(); ++i) {
      EXPECT_EQ(reducer.statistics().step, 0u);
      reducer.wait_gradients(i);
    }
    EXPECT_EQ(fate.finished, 1);
    EXPECT_EQ(reducer.statistics().step, 1u);
  });
  EXPECT_EQ(fate.finished, 1);
  with_reducer(fate, true, [&](Reducer& reducer, const Model&) { reducer.wait(); });
  EXPECT_EQ(fate.finished, 2);
}

}  // namespace
}  // namespace lockstep
