#include "examples/digits/trainer.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace digits {

std::vector<std::size_t> widths(const TrainingOptions& options) {
  std::vector<std::size_t> all{kPixels};
  all.insert(all.end(), options.layers, options.hidden);
  all.push_back(kClasses);
  return all;
}

std::size_t divide_batch(std::size_t batch, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  if (batch > 0 && batch % n == 0) return batch / n;
  throw std::invalid_argument("--batch " + std::to_string(batch) + " cannot be dealt evenly to " +
                              std::to_string(n) + " ranks; choose a multiple of " + std::to_string(n));
}

std::size_t count_steps(std::size_t batch, std::size_t samples) {
  if (batch <= samples) return samples / batch;
  throw std::invalid_argument("--batch " + std::to_string(batch) + " is more than the " +
                              std::to_string(samples) + " samples; choose a smaller one");
}

/// Bytes of a layer's gradients in a bucket.
static std::size_t layer_bytes(std::size_t inputs, std::size_t outputs) {
  return (inputs + 1) * outputs * sizeof(float) + lockstep::BucketPlan::kAlignment;
}

/// A bucket for about each layer, so that the gradients of one travel while backward works on the one before.
/// The library's defaults are for networks a hundred times larger, and remain the upper limit.
lockstep::ReducerOptions bucket_caps(const TrainingOptions& options) {
  const lockstep::ReducerOptions defaults;
  const std::size_t widest = options.layers > 1 ? options.hidden : kPixels;
  lockstep::ReducerOptions caps;
  caps.bucket_bytes = std::min(defaults.bucket_bytes, layer_bytes(widest, options.hidden));
  caps.first_bucket_bytes = std::min(defaults.first_bucket_bytes, layer_bytes(options.hidden, kClasses));
  return caps;
}

namespace {

/// FNV-1a over the bits of every parameter.
std::uint64_t hash(const std::vector<lockstep::Parameter>& parameters) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const lockstep::Parameter& p : parameters) {
    std::size_t bytes = sizeof(float);
    for (const std::size_t dimension : p.shape) bytes *= dimension;
    const auto* data = static_cast<const unsigned char*>(p.value);
    for (std::size_t i = 0; i < bytes; ++i) value = (value ^ data[i]) * 0x100000001b3u;
  }
  return value;
}

}  // namespace

Trainer::Trainer(lockstep::Communicator& communicator, const Dataset& data, const TrainingOptions& options)
    : communicator_(communicator),
      data_(data),
      options_(options),
      rank_batch_(divide_batch(options.batch, communicator.size())),
      sampler_(data.size(), communicator.size(), communicator.rank(), true, options.seed, true),
      steps_per_epoch_(count_steps(options.batch, data.size())),
      network_(widths(options), options.seed),
      parameters_(network_.parameters()),
      reducer_(communicator, parameters_, bucket_caps(options)) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    network_.set_gradient(i, static_cast<float*>(reducer_.gradient(i)));
  }
}

std::vector<double> Trainer::run_epoch(std::size_t epoch, const std::function<void(const Progress&)>& show) {
  sampler_.set_epoch(epoch);
  const std::vector<std::size_t> indices = sampler_.indices();
  const double total = static_cast<double>(options_.epochs * steps_per_epoch_);
  std::vector<double> losses(steps_per_epoch_);
  for (std::size_t s = 0; s < steps_per_epoch_; ++s) {
    const double left = 1.0 - static_cast<double>(epoch * steps_per_epoch_ + s) / total;
    losses[s] = step(std::span(indices).subspan(s * rank_batch_, rank_batch_), options_.rate * left, true);
    show({epoch, s, losses[s]});
  }
  communicator_.all_reduce(losses.data(), losses.data(), losses.size(), lockstep::DataType::f64,
                           lockstep::ReduceOp::avg);
  return losses;
}

double Trainer::step(std::span<const std::size_t> samples, double rate, bool synchronise) {
  const Dataset batch = select(data_, samples);
  const std::span<const float> logits = network_.forward(batch.images.data(), batch.size());
  const double loss = softmax_cross_entropy(logits, batch.labels, logits_gradient_);
  network_.backward(logits_gradient_, [&](std::size_t parameter) {
    if (synchronise) reducer_.mark_ready(parameter);
  });
  if (synchronise) reducer_.wait();
  network_.step(static_cast<float>(rate), static_cast<float>(options_.momentum));
  return loss;
}

void Trainer::communicate() {
  for (std::size_t i = parameters_.size(); i-- > 0;) reducer_.mark_ready(i);
  reducer_.wait();
}

std::uint64_t Trainer::parameters_hash() const { return hash(parameters_); }

void Trainer::check_replicas() {
  const std::uint64_t mine = parameters_hash();
  std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator_.size()));
  communicator_.all_gather(&mine, all.data(), 1, lockstep::DataType::u64);
  std::string different;
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] != all[0]) different.append(" ").append(std::to_string(r));
  }
  if (!different.empty())
    throw std::runtime_error("replicas differ: these ranks have other parameters than rank 0:" + different);
}

double Trainer::accuracy(const Dataset& data) {
  const std::size_t correct = count_correct(network_.forward(data.images.data(), data.size()), data.labels);
  return static_cast<double>(correct) / static_cast<double>(data.size());
}

}  // namespace digits
