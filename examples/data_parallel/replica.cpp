#include "examples/data_parallel/replica.hpp"

#include <array>
#include <numeric>

namespace data_parallel {

using lockstep::Communicator;
using lockstep::DataType;
using lockstep::ReduceOp;

namespace {

constexpr int kRoot = 0;

std::array<std::size_t, 4> widths(const TrainingOptions& options) {
  return {digits::kPixels, options.hidden, options.hidden, digits::kClasses};
}

std::size_t element_count(const lockstep::Parameter& parameter) {
  return std::accumulate(parameter.shape.begin(), parameter.shape.end(), std::size_t{1}, std::multiplies<>());
}

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Losses of equal shares at the root.
double gather_losses(Communicator& communicator, double loss) {
  std::vector<double> losses(static_cast<std::size_t>(communicator.size()));
  communicator.gather(&loss, losses.data(), 1, DataType::f64, kRoot);
  return mean(losses);
}

class Distributed final : public Form {
 public:
  Distributed(Communicator& communicator, const digits::Dataset& data, const TrainingOptions& options)
      : communicator_(communicator),
        data_(data),
        options_(options),
        network_(widths(options), options.seed),
        parameters_(network_.parameters()),
        // About a bucket for each layer.
        reducer_(communicator, parameters_, {.bucket_bytes = 1u << 20}) {
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      network_.set_gradient(i, static_cast<float*>(reducer_.gradient(i)));
  }

  double step(Shares shares) override {
    const digits::Dataset batch = select(data_, shares[static_cast<std::size_t>(communicator_.rank())]);
    const auto logits = network_.forward(batch.images.data(), batch.size());
    const double loss = digits::softmax_cross_entropy(logits, batch.labels, logits_gradient_);
    network_.backward(logits_gradient_, [this](std::size_t i) { reducer_.mark_ready(i); });
    reducer_.wait();
    network_.step(options_.rate, options_.momentum);
    return gather_losses(communicator_, loss);
  }

 private:
  Communicator& communicator_;
  const digits::Dataset& data_;
  TrainingOptions options_;
  digits::Mlp network_;
  std::vector<lockstep::Parameter> parameters_;
  lockstep::Reducer reducer_;
  std::vector<float> logits_gradient_;
};

class ParameterServer final : public Form {
 public:
  ParameterServer(Communicator& communicator, const digits::Dataset& data, const TrainingOptions& options)
      : communicator_(communicator), data_(data), replica_(options) {}

  double step(Shares shares) override {
    const digits::Dataset batch = select(data_, shares[static_cast<std::size_t>(communicator_.rank())]);
    const double loss = replica_.compute(batch.images, batch.labels);
    replica_.step_at_root(communicator_);
    replica_.replicate(communicator_);
    return gather_losses(communicator_, loss);
  }

 private:
  Communicator& communicator_;
  const digits::Dataset& data_;
  Replica replica_;
};

class Scattering final : public Form {
 public:
  Scattering(Communicator& communicator, const digits::Dataset& data, const TrainingOptions& options)
      : communicator_(communicator), data_(data), replica_(options) {}

  double step(Shares shares) override {
    digits::Dataset batch;  // The whole of it, at the root.
    if (communicator_.rank() == kRoot) {
      std::vector<std::size_t> samples;
      for (const auto& share : shares) samples.insert(samples.end(), share.begin(), share.end());
      batch = select(data_, samples);
    }
    const std::size_t size = shares.front().size();
    images_.resize(size * digits::kPixels);
    labels_.resize(size);
    communicator_.scatter(batch.images.data(), images_.data(), images_.size(), DataType::f32, kRoot);
    communicator_.scatter(batch.labels.data(), labels_.data(), labels_.size(), DataType::i32, kRoot);
    replica_.replicate(communicator_);
    const double loss = replica_.compute(images_, labels_);
    replica_.step_at_root(communicator_);
    return gather_losses(communicator_, loss);
  }

 private:
  Communicator& communicator_;
  const digits::Dataset& data_;
  Replica replica_;
  std::vector<float> images_;
  std::vector<int> labels_;
};

}  // namespace

Replica::Replica(const TrainingOptions& options)
    : options_(options),
      network_(widths(options), options.seed),
      parameters_(network_.parameters()),
      gradients_(static_cast<float*>(lockstep::allocate(network_.parameter_count() * sizeof(float)))) {
  float* next = gradients_.get();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    network_.set_gradient(i, next);
    next += element_count(parameters_[i]);
  }
}

double Replica::compute(std::span<const float> images, std::span<const int> labels) {
  const auto logits = network_.forward(images.data(), labels.size());
  const double loss = digits::softmax_cross_entropy(logits, labels, logits_gradient_);
  network_.backward(logits_gradient_, [](std::size_t) {});
  return loss;
}

void Replica::replicate(Communicator& communicator) {
  for (const lockstep::Parameter& p : parameters_)
    communicator.broadcast(p.value, element_count(p), p.type, kRoot);
}

void Replica::step_at_root(Communicator& communicator) {
  communicator.reduce(gradients_.get(), gradients_.get(), network_.parameter_count(), DataType::f32,
                      ReduceOp::avg, kRoot);
  if (communicator.rank() == kRoot) network_.step(options_.rate, options_.momentum);
}

std::unique_ptr<Form> make_distributed(Communicator& communicator, const digits::Dataset& data,
                                       const TrainingOptions& options) {
  return std::make_unique<Distributed>(communicator, data, options);
}
std::unique_ptr<Form> make_parameter_server(Communicator& communicator, const digits::Dataset& data,
                                            const TrainingOptions& options) {
  return std::make_unique<ParameterServer>(communicator, data, options);
}
std::unique_ptr<Form> make_scattering(Communicator& communicator, const digits::Dataset& data,
                                      const TrainingOptions& options) {
  return std::make_unique<Scattering>(communicator, data, options);
}

}  // namespace data_parallel
