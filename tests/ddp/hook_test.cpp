// Communication hooks: what they are called with and in which order, and which results and hooks are refused.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <string>

#include "lockstep/ddp.hpp"
#include "tests/ddp/hook_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

/// Gathers every rank's bucket and sums them itself: two stages, the first of which blocks.
class GatheringHook final : public CommunicationHook {
 public:
  std::string name() const override { return "gathering"; }

  void attach(Communicator& communicator, const BucketPlan& plan, std::span<const Parameter>) override {
    ranks_ = static_cast<std::size_t>(communicator.size());
    all_.assign(plan.buckets.size(), {});
    calls_.clear();
  }

  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    calls_.push_back("s" + std::to_string(bucket.index));
    communicator.barrier();
    bytes_ += bucket.bytes();
    std::vector<float>& all = all_[bucket.index];
    all.resize(ranks_ * bucket.count);
    return communicator.all_gather_async(bucket.data, all.data(), bucket.count, bucket.type);
  }

  void finish(const GradientBucket& bucket) override {
    calls_.push_back("f" + std::to_string(bucket.index));
    auto* sums = static_cast<float*>(bucket.data);
    for (std::size_t e = 0; e < bucket.count; ++e) {
      float sum = 0;
      for (std::size_t r = 0; r < ranks_; ++r) sum += all_[bucket.index][r * bucket.count + e];
      sums[e] = bucket.average ? sum / static_cast<float>(ranks_) : sum;
    }
  }

  void end_step(bool good) override { good_ends_ += good ? 1 : 0; }
  std::uint64_t bytes_on_wire() const override { return bytes_; }
  const std::vector<std::string>& calls() const { return calls_; }
  std::size_t good_ends() const { return good_ends_; }

 private:
  std::size_t ranks_ = 0;
  std::vector<std::vector<float>> all_;
  std::vector<std::string> calls_;
  std::size_t good_ends_ = 0;
  std::atomic<std::uint64_t> bytes_{0};
};

TEST(CommunicationHook, GetsEveryBucketOnceInPlanOrder) {
  for (const bool views : {true, false}) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      Model model(20, 5);
      auto hook = std::make_shared<GatheringHook>();
      ReducerOptions options = small_buckets(hook);
      options.gradients_as_views = views;
      options.rebuild = false;  // One plan, attached once.
      Reducer reducer(communicator, model.list(options), options);
      for (std::size_t step = 0; step < kSteps; ++step) {
        run_step(reducer, model, communicator.rank(), step);
        expect_averages(reducer, model, communicator.size(), step);
      }
      const std::size_t buckets = reducer.plan().buckets.size();
      ASSERT_GT(buckets, 2u);
      std::vector<std::string> starts, finishes;
      for (const std::string& call : hook->calls()) (call[0] == 's' ? starts : finishes).push_back(call);
      ASSERT_EQ(starts.size(), kSteps * buckets);
      ASSERT_EQ(finishes.size(), kSteps * buckets);
      EXPECT_EQ(hook->good_ends(), kSteps);
      for (std::size_t k = 0; k < starts.size(); ++k) {
        EXPECT_EQ(starts[k], "s" + std::to_string(k % buckets));
        EXPECT_EQ(finishes[k], "f" + std::to_string(k % buckets));
      }
      EXPECT_GE(hook->bytes_on_wire(), kSteps * reducer.statistics().bytes);
    });
  }
}

TEST(CommunicationHook, IsAttachedAnewToRebuiltBuckets) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Model model(20, 5);
    auto hook = std::make_shared<GatheringHook>();
    ReducerOptions options = small_buckets(hook);
    options.gradients_as_views = false;
    Reducer reducer(communicator, model.list(options), options);
    for (std::size_t step = 0; step < kSteps; ++step) {
      run_step(reducer, model, communicator.rank(), step);
      expect_averages(reducer, model, communicator.size(), step);
    }
    // run_step marks forwards, the first plan goes backwards.
    EXPECT_EQ(reducer.plan().buckets[0].parts[0].parameter, 0u);
    EXPECT_EQ(hook->calls().size(), 2 * (kSteps - 1) * reducer.plan().buckets.size());
  });
}

TEST(CommunicationHook, IsAFunctionThatReducesInPlace) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(12, 3);
    const auto hook = make_hook("plain", [](Communicator& c, const GradientBucket& bucket) {
      return HookResult{c.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op())};
    });
    Reducer reducer(communicator, model.list(), small_buckets(hook));
    for (std::size_t step = 0; step < kSteps; ++step) {
      run_step(reducer, model, communicator.rank(), step);
      expect_averages(reducer, model, communicator.size(), step);
    }
    EXPECT_GT(hook->bytes_on_wire(), 0u);
  });
}

TEST(CommunicationHook, IsAFunctionWithAResultOfItsOwn) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(12, 3);
    std::vector<std::vector<float>> results(100);
    const auto hook = make_hook("elsewhere", [&](Communicator& c, const GradientBucket& bucket) {
      std::vector<float>& result = results[bucket.index];
      result.resize(bucket.count);
      Work work = c.all_reduce_async(bucket.data, result.data(), bucket.count, bucket.type, bucket.op());
      return HookResult{std::move(work), result.data(), result.size()};
    });
    Reducer reducer(communicator, model.list(), small_buckets(hook));
    for (std::size_t step = 0; step < kSteps; ++step) {
      run_step(reducer, model, communicator.rank(), step);
      expect_averages(reducer, model, communicator.size(), step);
    }
  });
}

TEST(CommunicationHook, ThatReturnsTheWrongSizeIsNamedOnEveryRankAndLeavesGradientsAlone) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(6, 1);
    std::vector<float> result(100'000);
    const auto hook = make_hook("short", [&](Communicator& c, const GradientBucket& bucket) {
      Work work = c.all_reduce_async(bucket.data, result.data(), bucket.count, bucket.type, bucket.op());
      return HookResult{std::move(work), result.data(), bucket.count - 1};
    });
    Reducer reducer(communicator, model.list(), small_buckets(hook));
    ASSERT_GT(reducer.plan().buckets.size(), 1u);
    const Error error = thrown_by([&] { run_step(reducer, model, communicator.rank(), 0); });
    EXPECT_EQ(error.culprit(), 0);
    const std::string text = error.what();
    EXPECT_NE(text.find("gradients of step 1: rank 0 got "), std::string::npos) << text;
    EXPECT_NE(text.find(" for bucket 0;"), std::string::npos) << "the first: " << text;
    for (std::size_t i = 0; i < model.tensors(); ++i) {
      const auto* gradient = static_cast<const float*>(reducer.gradient(i));
      for (std::size_t e = 0; e < model.elements(i); ++e) {
        ASSERT_EQ(gradient[e], local_gradient(communicator.rank(), 0, i, e));
      }
    }
    std::vector<std::size_t> all(model.tensors());
    std::iota(all.begin(), all.end(), std::size_t{0});
    reducer.freeze(all);
    EXPECT_NO_THROW(reducer.wait()) << "a step without buckets has no wrong result";
  });
}

TEST(CommunicationHook, ThatReturnsTheWrongSizeOnOneRankIsThatRanksErrorEverywhere) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(6, 1);
    std::vector<float> result(100'000);
    const std::size_t lacking = communicator.rank() == 1 ? 1 : 0;
    ReducerOptions options;
    options.gradients_as_views = false;
    options.hook = make_hook("short", [&](Communicator& c, const GradientBucket& bucket) {
      Work work = c.all_reduce_async(bucket.data, result.data(), bucket.count, bucket.type, bucket.op());
      return HookResult{std::move(work), result.data(), bucket.count - lacking};
    });
    Reducer reducer(communicator, model.list(options), options);
    const Error error = thrown_by([&] { run_step(reducer, model, communicator.rank(), 0); });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_NE(std::string(error.what()).find("gradients of step 1: rank 1 got "), std::string::npos)
        << error.what();
    for (std::size_t i = 0; i < model.tensors(); ++i) {
      const auto* gradient = static_cast<const float*>(reducer.gradient(i));
      for (std::size_t e = 0; e < model.elements(i); ++e)
        ASSERT_EQ(gradient[e], local_gradient(communicator.rank(), 0, i, e));
    }
  });
}

TEST(CommunicationHook, ThatDiffersBetweenRanksIsNamed) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(3, 1);
    const ReducerOptions options =
        communicator.rank() == 0 ? ReducerOptions{} : small_buckets(std::make_shared<GatheringHook>());
    const Error error = thrown_by([&] { Reducer reducer(communicator, model.list(options), options); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(error.what()).find("hook \"gathering\""), std::string::npos) << error.what();
  });
}

/// It would mix what it keeps of their buckets. Of one rank alone the others are told.
TEST(CommunicationHook, OfAnotherReducerIsRefusedOnEveryRank) {
  for (const bool everywhere : {true, false}) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(6, 1);
      const auto hook = std::make_shared<GatheringHook>();
      const bool odd = everywhere || communicator.rank() == 1;
      const auto other = odd ? hook : std::make_shared<GatheringHook>();
      const auto expect_refusal = [&](const std::string& owner, const std::function<void()>& call) {
        const Error error = thrown_by(call);
        EXPECT_EQ(error.code(), odd ? ErrorCode::invalid_argument : ErrorCode::refused);
        const std::string text = error.what();
        EXPECT_EQ(text.rfind(owner + (odd ? ": hook" : ": rank 1 cannot start: hook"), 0), 0u) << text;
        EXPECT_NE(text.find("hook \"gathering\" is another reducer's"), std::string::npos) << text;
      };
      {
        Reducer reducer(communicator, model.list(), small_buckets(hook));
        expect_refusal("Reducer", [&] { Reducer(communicator, model.list(), small_buckets(other)); });
        expect_refusal("ShardedOptimizer", [&] {
          ShardedOptimizer(communicator, model.list(ZeroStage::gradients), std::make_shared<AdamW>(0.1),
                           {.hook = other});
        });
        run_step(reducer, model, communicator.rank(), 0);
        expect_averages(reducer, model, communicator.size(), 0);
      }
      ShardedOptimizer sharded(communicator, model.list(ZeroStage::gradients), std::make_shared<AdamW>(0.1),
                               {.hook = other});
    });
  }
}

TEST(CommunicationHook, DestructionInTheMidstOfAStepTellsThePeers) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Model model(20, 5);
    Reducer reducer(communicator, model.list(), small_buckets(std::make_shared<GatheringHook>()));
    const bool quitter = communicator.rank() == 0;
    for (std::size_t i = model.tensors(); i-- > (quitter ? 12u : 0u);) reducer.mark_ready(i);
    if (quitter) return;
    const Error error = thrown_by([&] { reducer.wait(); });
    EXPECT_EQ(error.code(), ErrorCode::aborted);
    EXPECT_EQ(error.culprit(), 0);
    EXPECT_NE(std::string(error.what()).find("destroyed its Reducer"), std::string::npos) << error.what();
  });
}

}  // namespace
}  // namespace lockstep
