// Data-parallel training of a small network: the same run whatever the number of ranks, and replicas that are
// checked.
#include "examples/digits/trainer.hpp"

#include <gtest/gtest.h>

#include <string>

#include "examples/digits/overlap.hpp"
#include "tests/engine/local_ranks.hpp"

namespace digits {
namespace {

using lockstep::testing::on_ranks;

const Split& data() {
  static const Split split = load_digits(DIGITS_DATA);
  return split;
}

constexpr TrainingOptions kSmall{.hidden = 48, .layers = 3, .batch = 60, .epochs = 4, .rate = 0.05};

struct Outcome {
  std::vector<double> losses;
  double accuracy = 0;
};

Outcome train(int ranks, const TrainingOptions& options) {
  Outcome outcome;
  on_ranks(ranks, "auto", [&](lockstep::Communicator& communicator) {
    Trainer trainer(communicator, data().train, options);
    for (std::size_t epoch = 0; epoch < options.epochs; ++epoch) {
      const auto losses = trainer.run_epoch(epoch, [](const Progress&) {});
      trainer.check_replicas();
      if (communicator.rank() == 0) outcome.losses.insert(outcome.losses.end(), losses.begin(), losses.end());
    }
    if (communicator.rank() == 0) outcome.accuracy = trainer.accuracy(data().test);
  });
  return outcome;
}

TEST(Trainer, LearnsTheSameOnAnyNumberOfRanks) {
  const Outcome one = train(1, kSmall);
  EXPECT_EQ(one.losses.size(), kSmall.epochs * (1438 / kSmall.batch));
  EXPECT_GT(one.accuracy, 0.93);
  EXPECT_LT(one.losses.back(), one.losses.front() / 5);
  for (const int ranks : {2, 3, 4}) {
    const Outcome many = train(ranks, kSmall);
    ASSERT_EQ(many.losses.size(), one.losses.size());
    for (std::size_t s = 0; s < one.losses.size(); ++s) {
      ASSERT_NEAR(many.losses[s], one.losses[s], 1e-4) << ranks << " ranks, step " << s;
    }
  }
}

TEST(Trainer, NamesTheReplicasThatDiffer) {
  on_ranks(4, "auto", [](lockstep::Communicator& communicator) {
    Trainer trainer(communicator, data().train, kSmall);
    trainer.check_replicas();
    const std::vector<std::size_t> samples{0, 1, 2};
    if (communicator.rank() == 1 || communicator.rank() == 3) trainer.step(samples, 0.1, false);
    try {
      trainer.check_replicas();
      ADD_FAILURE() << "not noticed";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("than rank 0: 1 3"), std::string::npos) << error.what();
    }
  });
}

TEST(Trainer, HasABucketForEachLayer) {
  on_ranks(2, "auto", [](lockstep::Communicator& communicator) {
    const Trainer trainer(communicator, data().train, {});
    EXPECT_EQ(trainer.reducer().plan().buckets.size(), 4u);
  });
}

TEST(Trainer, MeasuringLeavesTheParametersAsTheyAre) {
  on_ranks(2, "auto", [](lockstep::Communicator& communicator) {
    Trainer trainer(communicator, data().train, kSmall);
    const double before = trainer.accuracy(data().test);
    const Overlap overlap = measure_overlap(communicator, trainer);
    EXPECT_GT(overlap.step, 0.0);
    EXPECT_GT(overlap.step_alone, 0.0);
    EXPECT_GT(overlap.communication, 0.0);
    EXPECT_EQ(trainer.accuracy(data().test), before);
    trainer.check_replicas();
  });
}

TEST(Trainer, RefusesABatchThatCannotBeDealt) {
  on_ranks(3, "auto", [](lockstep::Communicator& communicator) {
    const auto message = [&](std::size_t batch) -> std::string {
      try {
        const Trainer trainer(communicator, data().train, {.batch = batch});
      } catch (const std::invalid_argument& error) {
        return error.what();
      }
      return "accepted";
    };
    EXPECT_EQ(message(64), "--batch 64 cannot be dealt evenly to 3 ranks; choose a multiple of 3");
    EXPECT_EQ(message(3000), "--batch 3000 is more than the 1438 samples; choose a smaller one");
  });
}

}  // namespace
}  // namespace digits
