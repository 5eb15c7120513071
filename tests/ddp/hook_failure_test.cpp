// Communication hooks that fail, and groups that are lost under one: an error of the step on every rank,
// which says whose failure it is.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/ddp/hook_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

/// Throws on rank 1, in the second step or at the second call, where `where` says.
class ThrowingHook final : public CommunicationHook {
 public:
  explicit ThrowingHook(std::string where) : where_(std::move(where)) {}
  std::string name() const override { return "throwing"; }
  void attach(Communicator& communicator, const BucketPlan&, std::span<const Parameter>) override {
    rank_ = communicator.rank();
    if (where_ == "attach") fail(2);
  }
  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    step_ = bucket.step;
    if (where_ == "start" && bucket.index == 1) fail(bucket.step);
    if (where_ == "start, strangely" && bucket.index == 1 && rank_ == 1) throw 7;
    return communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op());
  }
  void finish(const GradientBucket& bucket) override {
    if (where_ == "finish" && bucket.index == 1) fail(bucket.step);
  }
  void end_step(bool good) override {
    if (where_ == "end_step" && good) fail(step_);
    if (where_ == "first end_step" && good) fail(step_ + 1);
  }
  std::vector<HookTensor> state() override {
    if (where_ == "state") fail(++states_);
    return {};
  }
  std::uint64_t bytes_on_wire() const override { return 0; }

 private:
  void fail(std::uint64_t step) const {
    if (rank_ == 1 && step == 2) throw std::runtime_error("no more paper");
  }
  const std::string where_;
  int rank_ = 0;
  std::uint64_t step_ = 0, states_ = 0;
};

TEST(CommunicationHook, ThatThrowsEndsTheStepOnEveryRank) {
  for (const char* transports : {"shm", "tcp"}) {
    for (const std::string where : {"attach", "start", "finish", "end_step"}) {
      on_ranks(3, transports, [&](Communicator& communicator) {
        Model model(20, 5);
        const ReducerOptions options = small_buckets(std::make_shared<ThrowingHook>(where));
        const Error error = thrown_by([&] {
          Reducer reducer(communicator, model.list(), options);
          for (std::size_t step = 0; step < kSteps; ++step)
            run_step(reducer, model, communicator.rank(), step);
        });
        EXPECT_EQ(error.culprit(), 1) << where;
        EXPECT_NE(std::string(error.what()).find("hook \"throwing\" failed on rank 1 in " + where),
                  std::string::npos)
            << error.what();
        EXPECT_NE(std::string(error.what()).find("no more paper"), std::string::npos) << error.what();
      });
    }
  }
}

/// All ranks have found the step good by then: one that dropped it would have other parameters.
TEST(CommunicationHook, ThatCannotEndAGoodStepEndsTheNextOneOnEveryRank) {
  for (const bool marks : {true, false}) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      Model model(20, 5);
      auto reducer = std::make_unique<Reducer>(communicator, model.list(),
                                               small_buckets(std::make_shared<ThrowingHook>("end_step")));
      const int rank = communicator.rank();
      for (std::size_t step = 0; step < 2; ++step) EXPECT_NO_THROW(run_step(*reducer, model, rank, step));
      expect_averages(*reducer, model, communicator.size(), 1);
      EXPECT_EQ(reducer->steps(), 2u);
      communicator.barrier();                           // The group is whole until the reducer is used again.
      if (rank == 1 && !marks) return reducer.reset();  // It tells the peers all the same.
      const Error error = thrown_by([&] { run_step(*reducer, model, rank, 2); });
      EXPECT_EQ(error.culprit(), 1);
      EXPECT_NE(
          std::string(error.what()).find("hook \"throwing\" failed on rank 1 in end_step: no more paper"),
          std::string::npos)
          << error.what();
      if (rank != 1) return;
      EXPECT_STREQ(thrown_by([&] { static_cast<void>(reducer->begin_step(1)); }).what(), error.what());
      EXPECT_STREQ(thrown_by([&] { static_cast<void>(reducer->slices()); }).what(), error.what());
    });
  }
}

/// After the first step all ranks lay out the buckets anew, the one whose hook has failed as well: the group
/// is whole.
TEST(CommunicationHook, ThatCannotEndTheStepBeforeARebuildEndsTheNextOneToo) {
  on_ranks(3, "auto", [&](Communicator& communicator) {
    Model model(20, 5);
    ReducerOptions options = small_buckets(std::make_shared<ThrowingHook>("first end_step"));
    options.gradients_as_views = false;
    Reducer reducer(communicator, model.list(options), options);
    const BucketPlan before = reducer.plan();
    EXPECT_NO_THROW(run_step(reducer, model, communicator.rank(), 0));
    EXPECT_NO_THROW(communicator.barrier());
    EXPECT_NE(reducer.plan(), before);
    expect_averages(reducer, model, communicator.size(), 0);
    communicator.barrier();
    const Error error = thrown_by([&] { run_step(reducer, model, communicator.rank(), 1); });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_NE(std::string(error.what()).find("hook \"throwing\" failed on rank 1 in end_step: no more paper"),
              std::string::npos)
        << error.what();
  });
}

/// While the peers are on their way into the checkpoint, or into other buckets.
TEST(CommunicationHook, ThatCannotSayWhatItKeepsIsAnErrorOnEveryRank) {
  const std::function<void(Reducer&)> calls[] = {
      [](Reducer& reducer) { reducer.freeze(std::vector<std::size_t>{0}); },
      [](Reducer& reducer) {
        std::vector<float> values(4);
        reducer.add_parameters(std::vector<Parameter>{{"joins", DataType::f32, {4}, values.data(), nullptr}});
      },
      [](Reducer& reducer) { static_cast<void>(reducer.slices()); },
      [](Reducer& reducer) { static_cast<void>(reducer.slices(CheckpointInfo{.world_size = 3})); },
      [](Reducer& reducer) {
        static_cast<void>(reducer.slices(CheckpointInfo{.world_size = 1}));
        reducer.restored(7);
      }};
  for (const auto& call : calls) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      Model model(3, 1);
      Reducer reducer(communicator, model.list(), small_buckets(std::make_shared<ThrowingHook>("state")));
      communicator.barrier();  // All have made theirs.
      const Error error = thrown_by([&] {
        call(reducer);
        communicator.barrier();
      });
      EXPECT_EQ(error.culprit(), 1);
      EXPECT_NE(std::string(error.what()).find("hook \"throwing\" on rank 1: no more paper"),
                std::string::npos)
          << error.what();
    });
  }
}

TEST(CommunicationHook, ThatThrowsSomethingElseEndsTheStepAsWell) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Model model(20, 5);
    Reducer reducer(communicator, model.list(),
                    small_buckets(std::make_shared<ThrowingHook>("start, strangely")));
    const Error error = thrown_by([&] { run_step(reducer, model, communicator.rank(), 0); });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_NE(std::string(error.what()).find("no std::exception"), std::string::npos) << error.what();
  });
}

/// What it says of a peer, and what is wrong with its own calls, is told as its failure.
TEST(CommunicationHook, ThatFailsAtAPeerOrAtACallOfItsOwnIsNamed) {
  const auto of_peer = [](Communicator& communicator, const GradientBucket& bucket) -> HookResult {
    if (communicator.rank() == 1) throw Error(ErrorCode::internal, "rank 2 sent nonsense", 2);
    return {communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op()),
            nullptr, 0};
  };
  const auto of_call = [](Communicator& communicator, const GradientBucket& bucket) -> HookResult {
    void* const data = communicator.rank() == 1 ? nullptr : bucket.data;
    communicator.all_reduce(data, data, bucket.count, bucket.type, bucket.op());
    return {};
  };
  for (const bool peer : {true, false}) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      Model model(6, 1);
      Reducer reducer(communicator, model.list(),
                      {.hook = peer ? make_hook("odd", of_peer) : make_hook("odd", of_call)});
      communicator.barrier();  // All have made theirs.
      const Error error = thrown_by([&] { run_step(reducer, model, communicator.rank(), 0); });
      EXPECT_EQ(error.culprit(), peer ? 2 : 1) << error.what();
      if (communicator.rank() != 1) return;
      EXPECT_NE(std::string(error.what()).find("hook \"odd\" failed on rank 1 in start of bucket 0: "),
                std::string::npos)
          << error.what();
    });
  }
}

/// Of an operation that is waited for, and of one in which the hook blocks.
TEST(CommunicationHook, AGroupThatIsLostSaysWhyItself) {
  const std::function<std::shared_ptr<CommunicationHook>()> makers[] = {
      [] { return make_half_hook(); },
      [] { return make_power_sgd_hook({.rank = 1, .start_step = 1, .min_compression = 1}); }};
  for (const auto& make : makers) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      std::vector<float> values(64);
      const std::vector<Parameter> list{{"w", DataType::f32, {8, 8}, values.data(), nullptr}};
      Reducer reducer(communicator, list, {.hook = make()});
      communicator.barrier();  // Both have made theirs.
      if (communicator.rank() == 1) return communicator.abort("no disk");
      const Error error = thrown_by([&] {
        reducer.mark_ready(0);
        reducer.wait();
      });
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_EQ(error.culprit(), 1);
      const std::string text = error.what();
      EXPECT_NE(text.find("no disk"), std::string::npos) << text;
      EXPECT_EQ(text.find("hook"), std::string::npos) << text;
    });
  }
}

}  // namespace
}  // namespace lockstep
