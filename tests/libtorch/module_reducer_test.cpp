// LibtorchReducer on ranks that lockstep-run started: lockstep-run -n 2 module_reducer_test
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <lockstep/libtorch.hpp>
#include <lockstep/lockstep.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using torch::Tensor;

/// A group of its own, and random numbers that differ between ranks.
class LibtorchReducerTest : public ::testing::Test {
 protected:
  LibtorchReducerTest() { torch::manual_seed(1000 + ranks_.rank()); }
  void TearDown() override {
    if (!failed_) ranks_.finalize();
  }

  int rank() const { return ranks_.rank(); }
  int last() const { return ranks_.size() - 1; }

  Tensor average(const Tensor& mine) {
    Tensor all = mine.detach().to(torch::kDouble).contiguous();
    ranks_.all_reduce(all.data_ptr(), all.data_ptr(), static_cast<std::size_t>(all.numel()), DataType::f64,
                      ReduceOp::avg);
    return all;
  }
  /// The gradients of `loss` on this rank, in memory of their own, without the hooks of a reducer.
  std::vector<Tensor> averages(const Tensor& loss, const std::vector<Tensor>& parameters) {
    std::vector<Tensor> result;
    for (const Tensor& own : torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/true))
      result.push_back(average(own));
    return result;
  }
  static void expect_gradients(const std::vector<Tensor>& parameters, const std::vector<Tensor>& expected) {
    ASSERT_EQ(parameters.size(), expected.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      ASSERT_TRUE(parameters[i].grad().defined()) << i;
      EXPECT_TRUE(torch::allclose(parameters[i].grad().to(torch::kDouble), expected[i], 1e-4, 1e-6)) << i;
    }
  }
  /// What `call` throws; afterwards the group is of no use.
  template <class Call>
  Error error_of(const Call& call) {
    failed_ = true;
    try {
      call();
    } catch (const Error& e) {
      return e;
    }
    ADD_FAILURE() << "no Error";
    return Error(ErrorCode::ok, "");
  }

  Communicator ranks_ = Communicator::create();
  bool failed_ = false;
};

struct TwoWays : torch::nn::Module {
  TwoWays() {
    left = register_module("left", torch::nn::Linear(3, 2));
    right = register_module("right", torch::nn::Linear(3, 2));
    nobody = register_module("nobody", torch::nn::Linear(3, 2));
  }
  torch::nn::Linear left = nullptr, right = nullptr, nobody = nullptr;
};

torch::nn::Sequential convolutions() {
  namespace nn = torch::nn;
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 4, 3)), nn::BatchNorm2d(4), nn::ReLU(), nn::Flatten(),
                        nn::Linear(4 * 6 * 6, 5));
}
Tensor images() { return torch::randn({7, 3, 8, 8}); }

TEST_F(LibtorchReducerTest, AveragesWhatBackwardLeftOnEachRank) {
  torch::nn::Sequential model = convolutions();
  LibtorchReducer reducer(ranks_, *model);
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (const bool away : {true, false, false, true}) {
    optimizer.zero_grad(away);
    const Tensor loss = model->forward(images()).pow(2).mean();
    const std::vector<Tensor> expected = averages(loss, model->parameters());
    loss.backward();
    reducer.wait();
    expect_gradients(model->parameters(), expected);
    optimizer.step();
  }
  for (const Tensor& p : model->parameters())
    EXPECT_TRUE(torch::allclose(average(p), p.to(torch::kDouble), 0, 1e-7));
}

TEST_F(LibtorchReducerTest, BeginsWithTheValuesOfRankZero) {
  torch::nn::Sequential model = convolutions();
  model->parameters()[2].set_requires_grad(false);
  const Tensor statistics = model->named_buffers()["1.running_mean"];
  statistics.fill_(rank() + 1);
  LibtorchReducer reducer(ranks_, *model);
  EXPECT_EQ(reducer.parameters().size(), model->parameters().size() - 1);
  for (const Tensor& p : model->parameters()) EXPECT_TRUE(torch::equal(average(p), p.to(torch::kDouble)));
  EXPECT_EQ(statistics[0].item<float>(), 1);

  statistics.fill_(rank() + 1);
  reducer.broadcast_buffers(last());
  EXPECT_EQ(statistics[0].item<float>(), last() + 1);
}

TEST_F(LibtorchReducerTest, BackwardWritesIntoTheBucketsWhereGradientsAreKept) {
  torch::nn::Linear model(4, 3);
  LibtorchReducer reducer(ranks_, *model);
  for (int step = 0; step < 3; ++step) {
    model->zero_grad(/*set_to_none=*/false);
    model->forward(torch::ones({2, 4})).sum().backward();
    reducer.wait();
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(reducer.parameters()[i].grad().data_ptr(), reducer.reducer().gradient(i));
    EXPECT_EQ(model->bias.grad()[0].item<float>(), 2);
  }
}

TEST_F(LibtorchReducerTest, AccumulatesWithoutSynchronisation) {
  torch::nn::Linear model(4, 3);
  LibtorchReducer reducer(ranks_, *model);
  for (int step = 0; step < 2; ++step) {
    model->zero_grad();
    const Tensor first = torch::randn({5, 4}), second = torch::randn({5, 4});
    const auto loss_of = [&model](const Tensor& x) { return model->forward(x).pow(2).sum(); };
    const std::vector<Tensor> expected = averages(loss_of(first) + loss_of(second), model->parameters());
    {
      const auto local = reducer.reducer().no_sync();
      loss_of(first).backward();
      reducer.wait();
    }
    loss_of(second).backward();
    reducer.wait();
    expect_gradients(model->parameters(), expected);
  }
}

TEST_F(LibtorchReducerTest, AParameterThatOneRankReachesHasAGradientOnAll) {
  TwoWays model;
  ReducerOptions options;
  options.find_unused = true;
  LibtorchReducer reducer(ranks_, model, options);
  for (int step = 0; step < 2; ++step) {
    model.zero_grad();
    const bool mine = rank() == last();
    (mine ? model.left : model.right)->forward(torch::ones({1, 3})).sum().backward();
    reducer.wait();
    const float of_one = 1.0F / static_cast<float>(ranks_.size());
    EXPECT_NEAR(model.left->bias.grad()[0].item<float>(), of_one, 1e-6);
    if (ranks_.size() > 1) EXPECT_NEAR(model.right->bias.grad()[0].item<float>(), 1 - of_one, 1e-6);
    EXPECT_FALSE(model.nobody->bias.grad().defined());
  }
}

TEST_F(LibtorchReducerTest, ATensorWithTwoNamesIsOneParameter) {
  TwoWays model;
  model.right->weight = model.right->register_parameter("tied", model.left->weight);
  LibtorchReducer reducer(ranks_, model, [] {
    ReducerOptions options;
    options.find_unused = true;  // `right` has a weight of its own that nothing reaches.
    return options;
  }());
  (model.left->forward(torch::ones({1, 3})) + model.right->forward(torch::ones({1, 3}))).sum().backward();
  reducer.wait();
  EXPECT_EQ(model.left->weight.grad()[0][0].item<float>(), 2);
}

TEST_F(LibtorchReducerTest, KeepsTheLayoutOfATensor) {
  torch::nn::Conv2d model(torch::nn::Conv2dOptions(3, 4, 3));
  model->weight.set_data(model->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  LibtorchReducer reducer(ranks_, *model);
  const Tensor loss = model->forward(images()).pow(2).mean();
  const std::vector<Tensor> expected = averages(loss, model->parameters());
  loss.backward();
  reducer.wait();
  EXPECT_EQ(model->weight.grad().strides(), model->weight.strides());
  expect_gradients(model->parameters(), expected);
}

TEST_F(LibtorchReducerTest, BucketsThatAreLaidOutAnewHaveTheGradientsFollow) {
  // Used from the last to the first: the second step's buckets are in another order than the first step's.
  torch::nn::Sequential model;
  for (int i = 0; i < 6; ++i) model->push_back(torch::nn::Linear(16, 16));
  int moved = 0;
  ReducerOptions options;
  options.bucket_bytes = options.first_bucket_bytes = 2 << 10;
  options.gradients_moved = [&moved] { ++moved; };
  LibtorchReducer reducer(ranks_, *model, options);
  for (int step = 0; step < 3; ++step) {
    model->zero_grad(/*set_to_none=*/step == 0);
    Tensor x = torch::randn({4, 16});
    for (std::size_t i = model->size(); i > 0; --i) x = model[i - 1]->as<torch::nn::Linear>()->forward(x);
    const Tensor loss = x.pow(2).mean();
    const std::vector<Tensor> expected = averages(loss, model->parameters());
    loss.backward();
    reducer.wait();
    expect_gradients(model->parameters(), expected);
  }
  if (ranks_.size() > 1) EXPECT_EQ(moved, 1);
}

TEST_F(LibtorchReducerTest, GradientsOutliveIt) {
  torch::nn::Linear model(4, 3);
  {
    LibtorchReducer first(ranks_, *model);
    LibtorchReducer reducer(std::move(first));
    model->forward(torch::ones({2, 4})).sum().backward();
    reducer.wait();
  }
  EXPECT_EQ(model->bias.grad()[0].item<float>(), 2);
  model->forward(torch::ones({2, 4})).sum().backward();  // No hook is left.
  EXPECT_EQ(model->bias.grad()[0].item<float>(), 4);
}

TEST_F(LibtorchReducerTest, AFrozenParameterHasNoGradientForTheOptimizer) {
  TwoWays model;
  LibtorchReducer reducer(ranks_, model);
  reducer.reducer().freeze(std::vector<std::size_t>{2, 3, 4, 5});
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  for (const bool away : {true, false}) {
    optimizer.zero_grad(away);
    const Tensor x = torch::randn({5, 3});
    (model.left->forward(x) + model.right->forward(x)).pow(2).sum().backward();
    reducer.wait();
    EXPECT_TRUE(model.left->weight.grad().defined());
    EXPECT_FALSE(model.right->weight.grad().defined());
    optimizer.step();
  }
  for (const Tensor& p : model.parameters())
    EXPECT_TRUE(torch::allclose(average(p), p.to(torch::kDouble), 0, 1e-7));
}

TEST_F(LibtorchReducerTest, GradientsStillOnTheirWayAreAwaitedAtItsEnd) {
  InitOptions slow;
  slow.transports = "tcp";  // Over which they are on their way for long.
  Communicator links = Communicator::create(slow);
  torch::nn::Sequential model;
  for (int i = 0; i < 4; ++i) model->push_back(torch::nn::Linear(512, 512));
  for (int round = 0; round < 5; ++round) {
    model->zero_grad();
    std::vector<Tensor> expected;
    {
      ReducerOptions options;
      options.overlap_forward = true;
      LibtorchReducer reducer(links, *model, options);
      const Tensor loss = model->forward(torch::randn({4, 512})).pow(2).mean();
      expected = averages(loss, model->parameters());
      loss.backward();
      reducer.wait();
    }
    expect_gradients(model->parameters(), expected);
  }
  links.finalize();
}

TEST_F(LibtorchReducerTest, ABackwardTooManyIsToldByName) {
  torch::nn::Linear model(4, 3);
  LibtorchReducer reducer(ranks_, *model);
  model->forward(torch::ones({2, 4})).sum().backward();
  const Error e = error_of([&] { model->forward(torch::ones({2, 4})).sum().backward(); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(e.what()).find("already marked"), std::string::npos) << e.what();
}

/// What a model of other numbers has saved, which may differ between ranks.
void load_other_values(torch::nn::Sequential& model, float value) {
  torch::nn::Sequential saved = convolutions();
  const torch::NoGradGuard values_only;
  for (const Tensor& p : saved->parameters()) p.fill_(value);
  std::stringstream file;
  torch::save(saved, file);
  torch::load(model, file);
}

TEST_F(LibtorchReducerTest, WhatIsLoadedLaterIsTrainedInTheMemoryThatTheReducerKnows) {
  torch::nn::Sequential model = convolutions();
  model[0]->as<torch::nn::Conv2d>()->weight.set_data(
      model[0]->as<torch::nn::Conv2d>()->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  LibtorchReducer reducer(ranks_, *model);
  std::vector<Tensor> before;
  for (const Tensor& p : model->parameters()) before.push_back(p.variable_data());
  load_other_values(model, 0.5);
  const Tensor loss = model->forward(images()).pow(2).mean();
  const std::vector<Tensor> expected = averages(loss, model->parameters());
  loss.backward();
  reducer.wait();
  expect_gradients(model->parameters(), expected);
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(model->parameters()[i].data_ptr(), before[i].data_ptr());
    EXPECT_EQ(model->parameters()[i].strides(), before[i].strides());
    EXPECT_TRUE((before[i] == 0.5).all().item<bool>());
  }
}

TEST_F(LibtorchReducerTest, RanksThatLoadOtherValuesLaterAreTold) {
  if (ranks_.size() == 1) GTEST_SKIP() << "needs two ranks";
  torch::nn::Sequential model = convolutions();
  const std::vector<Tensor> alive = [&] {
    std::vector<Tensor> tensors;
    for (const Tensor& p : model->parameters()) tensors.push_back(p.variable_data());
    return tensors;
  }();
  ReducerOptions options;
  options.check_replicas_every = 1;
  LibtorchReducer reducer(ranks_, *model, options);
  load_other_values(model, rank() == last() ? 1.0F : 0.5F);
  model->forward(images()).pow(2).mean().backward();
  const Error e = error_of([&] { reducer.wait(); });
  EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
  EXPECT_NE(std::string(e.what()).find("\"0.weight\""), std::string::npos) << e.what();
}

TEST_F(LibtorchReducerTest, AParameterOfAnotherTypeIsRefusedByNameOnAllRanks) {
  torch::nn::Linear model(4, 3);
  LibtorchReducer reducer(ranks_, *model);
  if (rank() == last()) model->to(torch::kDouble);
  const Error e = error_of([&] {
    model->forward(torch::ones({2, 4}, model->weight.options().requires_grad(false))).sum().backward();
    reducer.wait();
  });
  EXPECT_EQ(e.code(), rank() == last() ? ErrorCode::invalid_argument : ErrorCode::aborted) << e.what();
  EXPECT_NE(std::string(e.what()).find("was CPUFloatType of ["), std::string::npos) << e.what();
}

TEST_F(LibtorchReducerTest, ABufferThatOneRankCannotSendAllAreTold) {
  if (ranks_.size() == 1) GTEST_SKIP() << "needs two ranks";
  torch::nn::Sequential model = convolutions();
  LibtorchReducer reducer(ranks_, *model);
  if (rank() == last()) model[1]->named_buffers()["running_mean"].set_data(torch::zeros({4}, torch::kShort));
  const Error e = error_of([&] { reducer.broadcast_buffers(); });
  EXPECT_EQ(e.code(), rank() == last() ? ErrorCode::invalid_argument : ErrorCode::aborted) << e.what();
  EXPECT_NE(std::string(e.what()).find("\"1.running_mean\" is of Short"), std::string::npos) << e.what();
}

TEST_F(LibtorchReducerTest, ASparseGradientIsRefusedByNameOnAllRanks) {
  torch::nn::Embedding model(torch::nn::EmbeddingOptions(10, 4).sparse(rank() == last()));
  LibtorchReducer reducer(ranks_, *model);
  const Error e = error_of([&] {
    model->forward(torch::tensor({1, 2})).sum().backward();
    reducer.wait();
  });
  EXPECT_EQ(e.code(), rank() == last() ? ErrorCode::invalid_argument : ErrorCode::aborted) << e.what();
  EXPECT_NE(std::string(e.what()).find("\"weight\" has a sparse gradient"), std::string::npos) << e.what();
}

/// Adds `bias`, for which backward has no gradient.
struct Untrained : torch::autograd::Function<Untrained> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x, const Tensor& bias) {
    return x + bias;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], Tensor()};
  }
};

TEST_F(LibtorchReducerTest, AGradientThatBackwardLeavesOutIsZero) {
  torch::nn::Linear model(4, 3);
  LibtorchReducer reducer(ranks_, *model);
  for (int step = 0; step < 3; ++step) {
    model->zero_grad();
    if (step == 1) model->weight.set_data(model->weight.detach().clone());
    Untrained::apply(torch::ones({2, 4}).matmul(model->weight.t()), model->bias).sum().backward();
    reducer.wait();
    EXPECT_TRUE((model->weight.grad() == 2).all().item<bool>());
    EXPECT_TRUE((model->bias.grad() == 0).all().item<bool>());
  }
}

TEST_F(LibtorchReducerTest, RanksThatLayTensorsOutDifferentlyAreTold) {
  if (ranks_.size() == 1) GTEST_SKIP() << "needs two ranks";
  torch::nn::Conv2d model(torch::nn::Conv2dOptions(3, 4, 3));
  if (rank() == last()) model->weight.set_data(model->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  const Error e = error_of([&] { LibtorchReducer(ranks_, *model); });
  EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
  EXPECT_NE(std::string(e.what()).find("laid out 0 2 3 1"), std::string::npos) << e.what();
}

TEST_F(LibtorchReducerTest, WhatOneRankCannotUseAllAreTold) {
  if (ranks_.size() == 1) GTEST_SKIP() << "needs two ranks";
  torch::nn::Linear model(4, 3);
  if (rank() == last()) model->register_buffer("counts", torch::zeros({3}, torch::kShort));
  const Error e = error_of([&] { LibtorchReducer(ranks_, *model); });
  EXPECT_EQ(e.code(), rank() == last() ? ErrorCode::invalid_argument : ErrorCode::aborted) << e.what();
  EXPECT_NE(std::string(e.what()).find("\"counts\" is of Short"), std::string::npos) << e.what();
}

}  // namespace
}  // namespace lockstep
