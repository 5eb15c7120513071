// ShardedOptimizer: the same values as one process that has all gradients, for every stage, world and
// arrangement; memory of a rank. Misuse: sharded_misuse_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "ddp/bucket_gaps.hpp"
#include "lib/base/float16.hpp"
#include "tests/ddp/digits_data.hpp"
#include "tests/ddp/hooks/every_hook.hpp"
#include "tests/ddp/sharded/arrangements.hpp"
#include "tests/ddp/sharded/single_process.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep {
namespace {

using testing::Arrangement;
using testing::expect_equal_values;
using testing::floats;
using testing::kArrangements;
using testing::on_ranks;
using testing::run_step;
using testing::SingleProcess;
using testing::small_buckets;

TEST(Sharded, TakesTheStepsOfASingleProcessBitForBit) {
  const std::shared_ptr<const Optimizer> optimizers[] = {std::make_shared<SgdMomentum>(0.01, 0.9, 0.001),
                                                         std::make_shared<AdamW>(0.01)};
  for (const auto& optimizer : optimizers) {
    for (const Arrangement& arrangement : kArrangements) {
      for (const int ranks : {1, 2, 4}) {
        on_ranks(ranks, ranks == 2 ? "tcp" : "auto", [&](Communicator& communicator) {
          Model model(20, 5);
          SingleProcess single(model, optimizer);
          ShardedOptimizer sharded(communicator, model.list(arrangement.stage), optimizer,
                                   small_buckets(arrangement));
          EXPECT_GT(sharded.plan().buckets.size(), 2u);
          for (std::size_t step = 0; step < 4; ++step) {
            run_step(sharded, model, communicator.rank(), step);
            sharded.step();
            single.step(ranks, step);
          }
          sharded.wait_parameters();
          for (std::size_t i = 0; i < model.tensors(); ++i) {
            const std::size_t bytes = model.elements(i) * sizeof(float);
            ASSERT_TRUE(bytes == 0 || std::memcmp(sharded.value(i), single.values(i).data(), bytes) == 0)
                << optimizer->name() << ", tensor " << i << " of " << ranks << " ranks";
          }
        });
      }
    }
  }
}

/// A hook brings every rank the whole sum; what differs between the stages is the memory that it runs over.
TEST(Sharded, StepsWithAHookInBothStagesAlike) {
  constexpr std::size_t kSteps = 12;  // PowerSGD compresses from the tenth on.
  for (const std::string_view hook : testing::every_hook()) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      std::vector<std::vector<float>> values[2];
      for (const ZeroStage stage : {ZeroStage::optimizer, ZeroStage::gradients}) {
        Model model(20, 5);
        ShardedOptions options = small_buckets({stage, true});
        options.hook = hook_by_name(hook);
        ShardedOptimizer sharded(communicator, model.list(options.stage), std::make_shared<SgdMomentum>(0.01),
                                 options);
        for (std::size_t step = 0; step < kSteps; ++step) {
          run_step(sharded, model, communicator.rank(), step);
          sharded.step();
        }
        sharded.wait_parameters();
        auto& mine = values[stage == ZeroStage::optimizer ? 0 : 1];
        for (std::size_t i = 0; i < model.tensors(); ++i)
          mine.emplace_back(floats(sharded.value(i)), floats(sharded.value(i)) + model.elements(i));
        EXPECT_LE(sharded.memory().in_flight, 4 * (8'192 + 64));
      }
      EXPECT_EQ(values[0], values[1]) << hook;
      EXPECT_TRUE(std::any_of(values[0].begin(), values[0].end(), [](const std::vector<float>& tensor) {
        return std::any_of(tensor.begin(), tensor.end(), [](float v) { return v != 0; });
      })) << hook;
    });
  }
}

/// Three ranks average to fractions, whose sums may be rounded in another order.
TEST(Sharded, IsCloseWhereAveragesAreFractionsAndEqualOnAllRanks) {
  const auto optimizer = std::make_shared<AdamW>(0.01);
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(3, "auto", [&](Communicator& communicator) {
      Model model(20, 5);
      SingleProcess single(model, optimizer);
      ShardedOptimizer sharded(communicator, model.list(arrangement.stage), optimizer,
                               small_buckets(arrangement));
      for (std::size_t step = 0; step < 4; ++step) {
        run_step(sharded, model, communicator.rank(), step);
        sharded.step();
        single.step(3, step);
      }
      sharded.wait_parameters();
      std::vector<Parameter> values = model.list();
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        values[i].value = sharded.value(i);
        for (std::size_t e = 0; e < model.elements(i); ++e)
          ASSERT_NEAR(floats(sharded.value(i))[e], single.values(i)[e], 1e-5);
      }
      expect_equal_values(communicator, values);
    });
  }
}

/// Larger than a bucket, and of pieces that three ranks could not share without padding.
TEST(Sharded, AViewOfALargeValueLiesInOnePiece) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    std::vector<float> value(64 * 64, 1), gradient(value.size());
    const std::vector<Parameter> list{{"large", DataType::f32, {64, 64}, value.data(), gradient.data()}};
    ShardedOptimizer sharded(communicator, list, std::make_shared<SgdMomentum>(0.5, 0.0),
                             small_buckets({ZeroStage::gradients, true}));
    for (std::size_t e = 0; e < gradient.size(); ++e) gradient[e] = static_cast<float>(e % 7);
    sharded.mark_ready(0);
    sharded.wait();
    sharded.step();
    sharded.wait_parameters();
    for (std::size_t e = 0; e < value.size(); ++e)
      ASSERT_EQ(floats(sharded.value(0))[e], 1 - 0.5f * static_cast<float>(e % 7)) << e;
  });
}

TEST(Sharded, ClipsByTheNormOfAllShards) {
  const auto optimizer = std::make_shared<SgdMomentum>(0.5, 0.0);
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(20, 5);
      double squares = 0;
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        for (std::size_t e = 0; e < model.elements(i); ++e)
          squares += std::pow(summed_gradient(2, 0, i, e) / 2.0, 2);
      }
      ShardedOptimizer sharded(communicator, model.list(arrangement.stage), optimizer,
                               small_buckets(arrangement));
      run_step(sharded, model, communicator.rank(), 0);
      EXPECT_NEAR(sharded.clip_gradients(3.0), std::sqrt(squares), 1e-6 * std::sqrt(squares));
      EXPECT_NEAR(sharded.clip_gradients(3.0), 3.0, 1e-5);
      sharded.step();
      sharded.wait_parameters();
      const float scale = static_cast<float>(3.0 / std::sqrt(squares));
      for (std::size_t e = 0; e < model.elements(0); ++e)
        ASSERT_NEAR(floats(sharded.value(0))[e], -0.5f * scale * summed_gradient(2, 0, 0, e) / 2, 1e-5);
    });
  }
}

/// A hook may leave anything in gaps, as one does whose result is in memory of its own.
TEST(Sharded, ClipsByTheNormOfGradientsAlone) {
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(20, 5);
      double squares = 0;
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        for (std::size_t e = 0; e < model.elements(i); ++e)
          squares += std::pow(summed_gradient(2, 0, i, e) / 2.0, 2);
      }
      ShardedOptions options = small_buckets(arrangement);
      options.hook = make_hook("dirty", [](Communicator& c, const GradientBucket& b) {
        c.all_reduce(b.data, b.data, b.count, b.type, b.op());
        internal::for_each_gap(b.parts, b.count, [&](std::size_t first, std::size_t count) {
          std::fill_n(floats(b.data) + first, count, 1e6f);
        });
        return HookResult{};
      });
      ShardedOptimizer sharded(communicator, model.list(options.stage),
                               std::make_shared<SgdMomentum>(0.5, 0.0), options);
      run_step(sharded, model, communicator.rank(), 0);
      EXPECT_NEAR(sharded.clip_gradients(3.0), std::sqrt(squares), 1e-6 * std::sqrt(squares));
    });
  }
}

struct MemoryCase {
  ZeroStage stage;
  bool undo, hook;
};

TEST(Sharded, ARankKeepsItsShareOfTheMemory) {
  constexpr std::size_t kElements = 1u << 20, kBytes = kElements * sizeof(float), kBucket = kBytes / 16;
  for (const int ranks : {1, 2, 4}) {
    on_ranks(ranks, "auto", [&](Communicator& communicator) {
      std::vector<float> value(kElements), gradient(kElements);
      for (const auto& [stage, undo, hook] : {MemoryCase{ZeroStage::optimizer, true, false},
                                              {ZeroStage::optimizer, false, false},
                                              {ZeroStage::gradients, true, false},
                                              {ZeroStage::gradients, true, true}}) {
        float* const own = stage == ZeroStage::gradients ? gradient.data() : nullptr;
        const std::vector<Parameter> list{{"weight", DataType::f32, {1024, 1024}, value.data(), own}};
        ShardedOptions options{.bucket_bytes = kBucket, .first_bucket_bytes = kBucket, .stage = stage};
        options.undo = undo;
        if (hook) options.hook = make_half_hook();
        ShardedOptimizer sharded(communicator, list, std::make_shared<AdamW>(0.01), options);
        for (int step = 0; step < 3; ++step) {
          sharded.wait_parameters(0);
          sharded.mark_ready(0);
          sharded.wait();
          sharded.step();
        }
        sharded.wait_parameters();
        const auto n = static_cast<std::size_t>(ranks);
        const ShardedMemory memory = sharded.memory();
        const std::size_t padding = sharded.plan().buckets.size() * 64;
        EXPECT_EQ(memory.values / kBytes, 1u);
        EXPECT_LE(memory.optimizer, 2 * (kBytes / n + padding));
        EXPECT_GE(memory.optimizer, 2 * kBytes / n);
        if (stage == ZeroStage::optimizer) {
          EXPECT_GE(memory.gradients, kBytes);
          EXPECT_GE(memory.undo, ranks > 1 && undo ? kBytes / n : 0);
          EXPECT_LE(memory.undo, ranks > 1 && undo ? kBytes / n + padding : 0);
          EXPECT_EQ(memory.in_flight, 0u);
        } else {
          EXPECT_EQ(memory.undo, 0u);
          EXPECT_GE(memory.gradients, kBytes / n);
          EXPECT_LE(memory.gradients, kBytes / n + padding);
          EXPECT_LE(memory.in_flight, 3 * kBucket + padding);
        }
      }
    });
  }
}

TEST(Sharded, MarksMayComeFromThreadsInAnyOrder) {
  const auto optimizer = std::make_shared<SgdMomentum>(0.01);
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      Model model(40, 9);
      SingleProcess single(model, optimizer);
      ShardedOptimizer sharded(communicator, model.list(arrangement.stage), optimizer,
                               small_buckets(arrangement));
      for (std::size_t step = 0; step < 3; ++step) {
        sharded.wait_parameters();
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < 2; ++t) {
          threads.emplace_back([&, t] {
            for (std::size_t i = t; i < model.tensors(); i += 2) {
              for (std::size_t e = 0; e < model.elements(i); ++e)
                floats(sharded.gradient(i))[e] = local_gradient(communicator.rank(), step, i, e);
              sharded.mark_ready(i);
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        sharded.wait();
        sharded.step();
        single.step(2, step);
      }
      sharded.wait_parameters();
      for (std::size_t i = 0; i < model.tensors(); ++i) {
        for (std::size_t e = 0; e < model.elements(i); ++e)
          ASSERT_EQ(floats(sharded.value(i))[e], single.values(i)[e]);
      }
    });
  }
}

/// Steps of a 1024th of the value: bf16, with 8 bits of precision, would lose every one of them.
TEST(Sharded, SmallStepsOfHalvesAreKeptInF32) {
  constexpr std::size_t kCount = 5'000;
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    const auto half = [&](float x) {
      return type == DataType::bf16 ? internal::BF16::from_float(x) : internal::F16::from_float(x);
    };
    const auto single = [&](std::uint16_t x) {
      return type == DataType::bf16 ? internal::BF16::to_float(x) : internal::F16::to_float(x);
    };
    for (const Arrangement& arrangement : kArrangements) {
      on_ranks(2, "auto", [&](Communicator& communicator) {
        std::vector<std::uint16_t> value(kCount, half(1)), gradient(kCount);
        std::vector<float> bias(10), bias_gradient(10);
        std::vector<Parameter> list{{"weight", type, {kCount}, value.data(), nullptr},
                                    {"bias", DataType::f32, {10}, bias.data(), nullptr}};
        if (arrangement.stage == ZeroStage::gradients) {
          list[0].gradient = gradient.data();
          list[1].gradient = bias_gradient.data();
        }
        ShardedOptimizer sharded(communicator, list, std::make_shared<SgdMomentum>(0x1p-10, 0.0),
                                 small_buckets(arrangement));
        // Ranks have gradients of 1 and 0 or 2 and 1: averages of 1/2 and of 3/2.
        for (int step = 1; step <= 64; ++step) {
          sharded.wait_parameters();
          const auto mine = static_cast<float>(communicator.rank() + step % 2);
          std::fill_n(static_cast<std::uint16_t*>(sharded.gradient(0)), kCount, half(mine));
          std::fill_n(floats(sharded.gradient(1)), 10, mine);
          sharded.mark_ready(1);
          sharded.mark_ready(0);
          sharded.wait();
          sharded.step();
        }
        sharded.wait_parameters();
        for (std::size_t e = 0; e < kCount; ++e)
          ASSERT_EQ(single(static_cast<const std::uint16_t*>(sharded.value(0))[e]), 1 - 64 * 0x1p-10f);
        EXPECT_EQ(floats(sharded.value(1))[9], -64 * 0x1p-10f);
        EXPECT_GE(sharded.memory().optimizer, 2 * sizeof(float) * kCount / 2) << "a slot and the value";
      });
    }
  }
}

/// A rank without samples takes part in every step, and the values of all stay equal.
TEST(Sharded, AveragesBySamplesWithUnevenInputs) {
  for (const Arrangement& arrangement : kArrangements) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      const std::uint64_t samples[][2] = {{4, 4}, {6, 2}, {0, 8}};
      const int rank = communicator.rank();
      Model model(8, 2);
      ShardedOptions options = small_buckets(arrangement);
      options.weighted = true;
      ShardedOptimizer sharded(communicator, model.list(options.stage),
                               std::make_shared<SgdMomentum>(1.0, 0.0), options);
      std::vector<float> expected(model.elements(3));
      for (std::size_t step = 0; step < std::size(samples); ++step) {
        const std::uint64_t mine = samples[step][rank];
        ASSERT_TRUE(sharded.begin_step(mine));
        if (mine > 0) {
          run_step(sharded, model, rank, step);
        } else {
          sharded.wait();
        }
        sharded.step();
        for (std::size_t e = 0; e < expected.size(); ++e) {
          for (const int r : {0, 1})
            expected[e] -= static_cast<float>(samples[step][r]) / 8 * local_gradient(r, step, 3, e);
        }
      }
      EXPECT_FALSE(sharded.begin_step(0));
      sharded.wait_parameters();
      for (std::size_t e = 0; e < expected.size(); ++e)
        ASSERT_NEAR(floats(sharded.value(3))[e], expected[e], 1e-4) << e;
      EXPECT_EQ(sharded.statistics().step, std::size(samples));
    });
  }
}

}  // namespace
}  // namespace lockstep
