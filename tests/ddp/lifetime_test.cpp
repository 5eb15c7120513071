// Who goes first: a reducer outlives the handle of its communicator, and a child forked from the trainer gets
// an error and an orderly end.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <type_traits>

#include "lockstep/ddp.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

constexpr std::size_t kTensors = 12;

template <typename Trainer>
void step(Trainer& trainer, const Model& model, int rank) {
  for (std::size_t i = kTensors; i-- > 0;) {
    auto* gradient = static_cast<float*>(trainer.gradient(i));
    for (std::size_t e = 0; e < model.elements(i); ++e) gradient[e] = local_gradient(rank, 1, i, e);
    trainer.mark_ready(i);
  }
  trainer.wait();
}

void expect_sums(const Reducer& reducer, const Model& model, int ranks) {
  for (std::size_t i = 0; i < kTensors; ++i)
    for (std::size_t e = 0; e < model.elements(i); ++e)
      ASSERT_EQ(static_cast<float*>(reducer.gradient(i))[e], summed_gradient(ranks, 1, i, e));
}

TEST(Lifetime, TheHandleOfTheCommunicatorMayMoveOrGoFirst) {
  for (const bool hooked : {false, true}) {
    on_ranks(2, "auto", [&](Communicator& given) {
      auto communicator = std::make_unique<Communicator>(std::move(given));
      const int rank = communicator->rank();
      Model model(kTensors, 1);
      ReducerOptions options{.average = false};
      if (hooked) options.hook = make_top_k_hook({.share = 1});
      Reducer reducer(*communicator, model.list(), options);
      step(reducer, model, rank);
      Communicator moved = std::move(*communicator);
      communicator.reset();
      step(reducer, model, rank);
      expect_sums(reducer, model, 2);
      { const Communicator gone = std::move(moved); }
      step(reducer, model, rank);
      expect_sums(reducer, model, 2);
    });
  }
}

TEST(Lifetime, TheHandleOfAShardedOptimizersCommunicatorMayGoFirst) {
  on_ranks(2, "auto", [](Communicator& given) {
    auto communicator = std::make_unique<Communicator>(std::move(given));
    const int rank = communicator->rank();
    Model model(kTensors, 1);
    ShardedOptimizer sharded(*communicator, model.list(ZeroStage::gradients), std::make_shared<AdamW>(1e-3));
    communicator.reset();
    step(sharded, model, rank);
    sharded.clip_gradients(1);
    sharded.step();
    sharded.wait_parameters();
  });
}

/// What all ranks end with is asked for after the last step.
TEST(Lifetime, LocalSgdAveragesParametersWhoseReducerIsGone) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    const auto local = std::make_shared<LocalSgd>(LocalSgdOptions{.period = 4});
    EXPECT_FALSE(local->average_parameters(true)) << "no reducer yet";
    std::vector<float> values(8);
    {
      const std::vector<Parameter> list{{"w", DataType::f32, {8}, values.data(), nullptr}};
      Reducer reducer(communicator, list, {.hook = local});
      reducer.mark_ready(0);
      reducer.wait();
    }
    values.assign(8, static_cast<float>(communicator.rank() + 1));
    EXPECT_TRUE(local->average_parameters(true));
    for (const float value : values) EXPECT_EQ(value, 1.5f);
  });
}

/// Runs `body` in a child, which ends well when it returns true. It may hang no longer than a test may.
template <typename Body>
void expect_in_child(Body body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::not_supported ? error.what() : "";
  }
  return "";
}

/// One rank, whose process forks; a world of its own, since the other ranks would be threads of the same.
template <typename Trainer, typename... Arguments>
void expect_refusal_in_child(Arguments... arguments) {
  auto group = Communicator::local_group(1);
  Model model(kTensors, 1);
  constexpr bool kSharded = std::is_same_v<Trainer, ShardedOptimizer>;
  const auto& list = kSharded ? model.list(ZeroStage::gradients) : model.list();
  auto trainer = std::make_unique<Trainer>(group[0], list, arguments...);
  step(*trainer, model, 0);
  const auto refused = [](const std::string& text) {
    return text.find("was forked from") != std::string::npos;
  };
  expect_in_child([&] {
    const bool marks = refused(refusal([&] { trainer->mark_ready(0); }));
    const bool waits = refused(refusal([&] { trainer->wait(); }));
    trainer.reset();
    return marks && waits;
  });
  trainer->mark_ready(kTensors - 1);
  expect_in_child([&] {  // In the midst of a step.
    const bool marks = refused(refusal([&] { trainer->mark_ready(0); }));
    const bool waits = refused(refusal([&] { trainer->wait(); }));
    trainer.reset();
    return marks && waits;
  });
  for (std::size_t i = 0; i + 1 < kTensors; ++i) trainer->mark_ready(i);
  trainer->wait();
}

TEST(Lifetime, AForkedChildIsRefusedAndEnds) {
  expect_refusal_in_child<Reducer>();
  expect_refusal_in_child<Reducer>(ReducerOptions{.hook = make_quantised_hook()});
  expect_refusal_in_child<ShardedOptimizer>(std::make_shared<AdamW>(1e-3));
}

TEST(Lifetime, ArgumentsThatAreNullAreNamed) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(kTensors, 1);
    EXPECT_NE(std::string(thrown_by([&] {
                            ShardedOptimizer(communicator, model.list(ZeroStage::gradients), nullptr);
                          }).what())
                  .find("the optimizer is null"),
              std::string::npos);
    EXPECT_NE(
        std::string(thrown_by([] { make_hook("mine", nullptr); }).what()).find("\"mine\" has no function"),
        std::string::npos);
    Reducer reducer(communicator, model.list());
    step(reducer, model, communicator.rank());
  });
}

}  // namespace
}  // namespace lockstep
