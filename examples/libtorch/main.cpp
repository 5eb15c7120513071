// libtorch-digits: a convolutional network in PyTorch's C++ interface learns handwritten digits on all ranks.
//
//   lockstep-run -n 4 --only-rank 0 libtorch-digits
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <lockstep/ddp.hpp>
#include <lockstep/libtorch.hpp>
#include <lockstep/lockstep.hpp>
#include <stdexcept>

#include "examples/digits/dataset.hpp"

namespace {

constexpr std::size_t kBatch = 64, kEpochs = 8;

torch::nn::Sequential network() {
  namespace nn = torch::nn;
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)), nn::ReLU(), nn::Flatten(),
                        nn::Linear(32 * 4 * 4, static_cast<int>(digits::kClasses)));
}

torch::Tensor images_of(const digits::Dataset& dataset) {
  return torch::tensor(dataset.images).view({static_cast<long>(dataset.size()), 1, 8, 8});
}
torch::Tensor labels_of(const digits::Dataset& dataset) {
  return torch::tensor(dataset.labels, torch::kLong);
}

double accuracy(torch::nn::Sequential& model, const digits::Dataset& test) {
  const torch::NoGradGuard numbers_only;
  return model->forward(images_of(test))
      .argmax(1)
      .eq(labels_of(test))
      .to(torch::kDouble)
      .mean()
      .item<double>();
}

void train(lockstep::Communicator& ranks) {
  const digits::Split data = digits::load_digits(DIGITS_DATA);
  const auto size = static_cast<std::size_t>(ranks.size());
  if (kBatch % size != 0) throw std::invalid_argument("the batch of 64 is no multiple of the ranks");
  lockstep::DistributedSampler sampler(data.train.size(), ranks.size(), ranks.rank(), true, 1, true);

  torch::nn::Sequential model = network();
  lockstep::LibtorchReducer reducer(ranks, *model);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    sampler.set_epoch(epoch);
    const auto mine = sampler.indices();
    double loss = 0;
    std::size_t steps = 0;
    for (std::size_t at = 0; at + kBatch / size <= mine.size(); at += kBatch / size, ++steps) {
      const digits::Dataset batch = digits::select(data.train, std::span(mine).subspan(at, kBatch / size));
      optimizer.zero_grad();
      const torch::Tensor error =
          torch::cross_entropy_loss(model->forward(images_of(batch)), labels_of(batch));
      error.backward();
      reducer.wait();
      optimizer.step();
      loss += error.item<double>();
    }
    loss /= static_cast<double>(steps);
    ranks.all_reduce(&loss, &loss, 1, lockstep::DataType::f64, lockstep::ReduceOp::avg);
    std::printf("epoch %zu: loss %.6f\n", epoch + 1, loss);
  }
  std::printf("accuracy %.4f; %s\n", accuracy(model, data.test), reducer.reducer().report().c_str());
}

}  // namespace

int main() try {
  torch::manual_seed(1);
  auto ranks = lockstep::Communicator::create();
  train(ranks);
  ranks.finalize();
} catch (const std::exception& e) {
  std::fprintf(stderr, "libtorch-digits: %s\n", e.what());
  return EXIT_FAILURE;
}
