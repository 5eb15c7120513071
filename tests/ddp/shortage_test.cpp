// What one rank cannot get, memory or a descriptor, while its peers go on: they are told, and nobody waits
// for what will not come.
#include "tests/ddp/shortage.hpp"

#include <gtest/gtest.h>

#include "lockstep/ddp.hpp"
#include "lockstep/ddp/checkpoint.hpp"
#include "lockstep/ddp/sharded_optimizer.hpp"
#include "tests/ddp/mode_world.hpp"
#include "tests/ddp/numbers.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::NoDescriptors;
using testing::NoMemoryFrom;
using testing::thrown_by;

constexpr int kShort = 1;  // The rank that gets nothing.

/// Ranks that share no blocks: what one has freed would serve another.
void on_processes(int ranks, const std::function<void(Communicator&)>& body) {
  const testing::MeetingPlace place;
  internal::testing::run_forked(ranks, [&](int rank) {
    try {
      Communicator communicator = place.join(rank, ranks, "auto");
      body(communicator);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
  });
}

void expect_told(const Error& error, const std::string& text) {
  EXPECT_EQ(error.culprit(), kShort) << error.what();
  EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
}

void mark_all(Numbers& numbers, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) numbers.mark(i);
}

// ---- changes of the plan

/// After a change that has failed nothing may look at what is half of one plan and half of the next.
void expect_broken(Reducer& reducer, const std::string& text) {
  static float value = 0;
  const Parameter more{"more", DataType::f32, {}, &value, nullptr};
  const std::function<void()> calls[] = {
      [&] { reducer.mark_ready(0); },
      [&] { reducer.wait(); },
      [&] { static_cast<void>(reducer.begin_step(1)); },
      [&] { reducer.freeze({}); },
      [&] {
        reducer.add_parameters({&more, 1});
      },
      [&] { static_cast<void>(reducer.slices()); },
      [&] { static_cast<void>(reducer.slices(CheckpointInfo{.world_size = 2})); },
      [&] { reducer.restored(1); },
  };
  for (const auto& call : calls) expect_told(thrown_by(call), text);
}

/// The step before has ended well everywhere; with another plan than its peers the rank would add up other
/// gradients in the next one.
TEST(Shortage, OfMemoryForRebuiltBucketsEndsTheNextStepOnAllRanks) {
  for (const bool views : {false, true}) {
    constexpr std::size_t kCount = 6;
    on_processes(2, [&](Communicator& communicator) {
      int moved = 0;
      ReducerOptions options{.bucket_bytes = 4, .first_bucket_bytes = 4};
      options.gradients_as_views = views;
      if (views) options.gradients_moved = [&] { ++moved; };
      Numbers numbers(communicator, kCount, options);
      mark_all(numbers, kCount);
      {
        const NoDescriptors none(communicator.rank() == kShort);
        numbers.reducer().wait();
      }
      EXPECT_EQ(numbers.reducer().steps(), 1u);
      for (std::size_t i = 0; i < kCount; ++i) numbers.expect(i, 1.5);
      if (communicator.rank() == kShort) {
        EXPECT_EQ(moved, 0);
        expect_broken(numbers.reducer(), "lay out its buckets anew");
      } else {
        expect_told(thrown_by([&] {
                      mark_all(numbers, kCount);
                      numbers.reducer().wait();
                    }),
                    "lay out its buckets anew");
      }
    });
  }
}

TEST(Shortage, OfMemoryForTheUndoCopyEndsTheConstructionOnAllRanks) {
  on_processes(2, [](Communicator& communicator) {
    const Error error = thrown_by([&] {
      const NoMemoryFrom none(1u << 20, communicator.rank() == kShort);
      Numbers numbers(communicator, 3, {.check_first = false});
      mark_all(numbers, 3);
      numbers.reducer().wait();
    });
    expect_told(error, "no memory for the undo copy");
  });
}

TEST(Shortage, OfMemoryForTheUndoCopyEndsTheConstructionOfAShardedOptimizerOnAllRanks) {
  on_processes(2, [](Communicator& communicator) {
    Model model(4, 2);
    const Error error = thrown_by([&] {
      const NoMemoryFrom none(1u << 20, communicator.rank() == kShort);
      ShardedOptimizer sharded(communicator, model.list(ZeroStage::optimizer),
                               std::make_shared<SgdMomentum>(0.1), {.stage = ZeroStage::optimizer});
      for (std::size_t i = 0; i < model.tensors(); ++i) sharded.mark_ready(i);
      sharded.wait();
    });
    expect_told(error, "no memory for the undo copy");
  });
}

TEST(Shortage, OfMemoryInFreezeEndsTheNextStepOnAllRanks) {
  on_processes(2, [](Communicator& communicator) {
    constexpr std::size_t kCount = 1'000;
    Numbers numbers(communicator, kCount);
    const bool culprit = communicator.rank() == kShort;
    const auto freeze = [&] {
      const NoMemoryFrom none(16'000, culprit);
      numbers.reducer().freeze(std::vector<std::size_t>{3});
    };
    if (culprit) {
      expect_told(thrown_by(freeze), "freeze");
      expect_broken(numbers.reducer(), "freeze");
      return;
    }
    expect_told(thrown_by([&] {
                  freeze();
                  mark_all(numbers, kCount);
                  numbers.reducer().wait();
                }),
                "freeze");
  });
}

/// The peers have reached the broadcast of the new values; their hooks still look at the parameters before.
TEST(Shortage, OfMemoryForParametersThatJoinEndsTheNextStepOnAllRanks) {
  for (const bool hook : {false, true}) {
    on_processes(3, [&](Communicator& communicator) {
      ReducerOptions options;
      if (hook) options.hook = make_quantised_hook();
      Numbers numbers(communicator, 3, options);
      mark_all(numbers, 3);
      numbers.reducer().wait();
      std::vector<float> values(2'000);
      const Parameter more{"more", DataType::f32, {2'000}, values.data(), nullptr};
      expect_told(thrown_by([&] {
                    const NoDescriptors none(communicator.rank() == kShort);
                    numbers.reducer().add_parameters({&more, 1});
                  }),
                  "add_parameters");
      expect_broken(numbers.reducer(), "add_parameters");
    });
  }
}

// ---- buckets that are lent

/// A model whose gradients fill a bucket each.
class LentWorld {
 public:
  LentWorld(Communicator& communicator, ShardedOptions options)
      : values_(kTensors, std::vector<float>(kElements)),
        gradients_(kTensors, std::vector<float>(kElements, 1)) {
    std::vector<Parameter> list;
    for (std::size_t i = 0; i < kTensors; ++i) {
      float* const own = options.stage == ZeroStage::gradients ? gradients_[i].data() : nullptr;
      list.push_back({"t" + std::to_string(i), DataType::f32, {kElements}, values_[i].data(), own});
    }
    options.bucket_bytes = options.first_bucket_bytes = kElements * sizeof(float);
    sharded_.emplace(communicator, list, std::make_shared<SgdMomentum>(0.1), options);
    communicator.barrier();  // Nobody is on its way out of the constructor when a rank fails.
  }
  static constexpr std::size_t kTensors = 5, kElements = 5'000;
  ShardedOptimizer& sharded() { return *sharded_; }
  void mark_from(std::size_t first) {
    for (std::size_t i = kTensors; i-- > first;) sharded_->mark_ready(i);
  }

 private:
  std::vector<std::vector<float>> values_, gradients_;
  std::optional<ShardedOptimizer> sharded_;
};

TEST(Shortage, OfMemoryForParametersThatJoinShardsEndsTheNextStepOnAllRanks) {
  for (const auto stage : {ZeroStage::optimizer, ZeroStage::gradients}) {
    on_processes(2, [&](Communicator& communicator) {
      LentWorld world(communicator, {.stage = stage});
      ShardedOptimizer& sharded = world.sharded();
      std::vector<float> values(2'000);
      float* const own = stage == ZeroStage::gradients ? values.data() : nullptr;
      const Parameter more{"more", DataType::f32, {2'000}, values.data(), own};
      expect_told(thrown_by([&] {
                    const NoDescriptors none(communicator.rank() == kShort);
                    sharded.add_parameters({&more, 1});
                  }),
                  "add_parameters");
      const std::function<void()> calls[] = {
          [&] { sharded.mark_ready(0); },
          [&] { sharded.wait(); },
          [&] {
            sharded.add_parameters({&more, 1});
          },
          [&] { static_cast<void>(sharded.value(0)); },
          [&] { sharded.wait_parameters(0); },
          [&] { sharded.wait_parameters(); },
          [&] { static_cast<void>(sharded.slices()); },
          [&] { static_cast<void>(sharded.slices(CheckpointInfo{.world_size = 2})); },
          [&] { sharded.restored(1); },
      };
      for (const auto& call : calls) expect_told(thrown_by(call), "add_parameters");
    });
  }
}

TEST(Shortage, OfABucketToLendFailsTheStepOnAllRanks) {
  for (const bool hook : {false, true}) {
    for (const bool check_first : {false, true}) {
      on_processes(3, [&](Communicator& communicator) {
        ShardedOptions options{.check_first = check_first};
        if (hook) options.hook = all_reduce_hook();
        LentWorld world(communicator, options);
        const NoDescriptors none(communicator.rank() == kShort);
        world.mark_from(0);
        expect_told(thrown_by([&] { world.sharded().wait(); }), "a bucket");
        expect_told(thrown_by([&] {
                      world.mark_from(0);
                      world.sharded().wait();
                    }),
                    "a bucket");
      });
    }
  }
}

/// Without a byte to be had not even an error can be written: the mark throws, and wait() tells the peers.
TEST(Shortage, OfAnyMemoryInAMarkFailsTheStepOnAllRanks) {
  for (const bool hook : {false, true}) {
    on_processes(3, [&](Communicator& communicator) {
      ShardedOptions options{.check_first = false};
      if (hook) options.hook = all_reduce_hook();
      LentWorld world(communicator, options);
      if (communicator.rank() == kShort) {
        const NoMemoryFrom none(1);
        EXPECT_THROW(world.mark_from(0), std::bad_alloc);
      } else {
        world.mark_from(0);
      }
      expect_told(thrown_by([&] { world.sharded().wait(); }), "no memory");
    });
  }
}

/// Each bucket begins as soon as it is marked, which takes memory for its collective.
TEST(Shortage, OfMemoryForACollectiveFailsTheStepOnAllRanks) {
  for (const bool overlap : {false, true}) {
    on_processes(2, [&](Communicator& communicator) {
      ReducerOptions options{.bucket_bytes = 4, .first_bucket_bytes = 4};
      options.check_first = false;
      options.overlap_forward = overlap;
      Numbers numbers(communicator, 6, options);
      communicator.barrier();
      {
        const NoMemoryFrom none(1, communicator.rank() == kShort);
        for (std::size_t i = 0; i < 6; ++i) numbers.mark(i);
      }
      expect_told(thrown_by([&] {
                    numbers.reducer().wait();
                    numbers.reducer().wait_gradients();
                  }),
                  "has no memory to start a bucket");
    });
  }
}

/// The gradients that backward did not reach travel as zeros, from buckets that wait() has to find.
TEST(Shortage, OfABucketToLendInWaitFailsTheStepOnAllRanks) {
  for (const bool hook : {false, true}) {
    on_processes(3, [&](Communicator& communicator) {
      ShardedOptions options{.find_unused = true};
      if (hook) options.hook = all_reduce_hook();
      LentWorld world(communicator, options);
      const bool culprit = communicator.rank() == kShort;
      world.mark_from(culprit ? LentWorld::kTensors : 0);
      const NoDescriptors none(culprit);
      expect_told(thrown_by([&] { world.sharded().wait(); }), "a bucket");
    });
  }
}

// ---- checkpoints

/// So many tensors that their list, and the manifest, take more than there is.
TEST(Shortage, OfMemoryForACheckpointIsAnErrorOnAllRanks) {
  const internal::TemporaryDirectory directory;
  on_processes(2, [&](Communicator& communicator) {
    std::vector<float> values(1'000);
    std::vector<Parameter> list;
    for (std::size_t i = 0; i < values.size(); ++i)
      list.push_back({"n" + std::to_string(i), DataType::f32, {}, &values[i], nullptr});
    const auto saved = slices_to_save(list, communicator), loaded = slices_to_load(list);
    const std::string path = directory.path() + "/last";
    const std::function<void()> save = [&] { save_checkpoint(communicator, path, saved, {.step = 1}); };
    const std::function<void()> load = [&] { load_checkpoint(communicator, path, loaded); };
    for (const auto& call : {save, load}) {
      const Error error = thrown_by([&] {
        const NoMemoryFrom none(16'000, communicator.rank() == kShort);
        call();
      });
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      expect_told(error, "no memory");
      EXPECT_NO_THROW(call());
    }
  });
}

}  // namespace
}  // namespace lockstep
