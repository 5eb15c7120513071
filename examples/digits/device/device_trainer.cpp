#include "examples/digits/device/device_trainer.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace digits {
namespace {

static_assert(sizeof(int) == sizeof(float));

std::unique_ptr<Compute> make_compute(int device, lockstep::Stream stream) {
  if (lockstep::device::properties(device).backend == "host") return make_host_compute(stream);
  return make_cuda_compute(stream);
}

lockstep::DeviceReducerOptions reducer_options(const TrainingOptions& options,
                                               lockstep::DeviceCompression compression) {
  const lockstep::ReducerOptions caps = bucket_caps(options);
  lockstep::DeviceReducerOptions result;
  result.bucket_bytes = caps.bucket_bytes;
  result.first_bucket_bytes = caps.first_bucket_bytes;
  result.compression = compression;
  return result;
}

}  // namespace

DeviceTrainer::DeviceTrainer(lockstep::Communicator& communicator, lockstep::DeviceCommunicator& device,
                             const Dataset& data, const TrainingOptions& options,
                             lockstep::DeviceCompression compression)
    : communicator_(communicator),
      data_(data),
      options_(options),
      rank_batch_(divide_batch(options.batch, communicator.size())),
      device_(device.device()),
      sampler_(data.size(), communicator.size(), communicator.rank(), true, options.seed, true),
      steps_per_epoch_(count_steps(options.batch, data.size())),
      compute_(make_compute(device_, compute_stream_.stream)),
      start_(widths(options), options.seed),
      network_(start_, std::max(rank_batch_, data.size()), device_, compute_stream_.stream, *compute_),
      reducer_(communicator, device, network_.parameters(), reducer_options(options, compression)),
      images_(device_floats(data.size() * kPixels, device_)),
      labels_(device_floats(data.size(), device_)),
      losses_(device_floats(data.size(), device_)) {
  for (std::size_t i = 0; i < network_.parameters().size(); ++i) {
    network_.set_gradient(i, static_cast<float*>(reducer_.gradient(i)));
  }
}

std::vector<double> DeviceTrainer::run_epoch(std::size_t epoch) {
  const lockstep::Stream stream = compute_stream_.stream;
  sampler_.set_epoch(epoch);
  const Dataset order = select(data_, sampler_.indices());
  const std::size_t used = steps_per_epoch_ * rank_batch_;
  lockstep::device::copy(images_.get(), order.images.data(), used * kPixels * sizeof(float), stream);
  lockstep::device::copy(labels_.get(), order.labels.data(), used * sizeof(int), stream);
  const auto* const labels = reinterpret_cast<const int*>(labels_.get());
  const double total = static_cast<double>(options_.epochs * steps_per_epoch_);
  for (std::size_t s = 0; s < steps_per_epoch_; ++s) {
    const double left = 1.0 - static_cast<double>(epoch * steps_per_epoch_ + s) / total;
    const std::size_t first = s * rank_batch_;
    step(images_.get() + first * kPixels, labels + first, losses_.get() + first, options_.rate * left);
  }
  std::vector<float> rows(used);
  lockstep::device::copy(rows.data(), losses_.get(), used * sizeof(float), stream);
  lockstep::device::synchronize(stream);
  std::vector<double> losses;
  for (std::size_t s = 0; s < steps_per_epoch_; ++s) {
    const float* const first = rows.data() + s * rank_batch_;
    losses.push_back(std::accumulate(first, first + rank_batch_, 0.0) / static_cast<double>(rank_batch_));
  }
  communicator_.all_reduce(losses.data(), losses.data(), losses.size(), lockstep::DataType::f64,
                           lockstep::ReduceOp::avg);
  return losses;
}

void DeviceTrainer::step(const float* images, const int* labels, float* losses, double rate) {
  network_.forward(images, rank_batch_);
  network_.backward(labels, losses,
                    [&](std::size_t parameter) { reducer_.mark_ready(parameter, compute_stream_.stream); });
  reducer_.wait(compute_stream_.stream);
  network_.step(static_cast<float>(rate), static_cast<float>(options_.momentum));
}

void DeviceTrainer::check_replicas() {
  for (const lockstep::Parameter& parameter : network_.parameters()) {
    const std::size_t count =
        std::accumulate(parameter.shape.begin(), parameter.shape.end(), std::size_t{1}, std::multiplies<>());
    std::vector<float> mine(count), all(count * static_cast<std::size_t>(communicator_.size()));
    lockstep::device::copy(mine.data(), parameter.value, count * sizeof(float), compute_stream_.stream);
    lockstep::device::synchronize(compute_stream_.stream);
    communicator_.all_gather(mine.data(), all.data(), count, lockstep::DataType::f32);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] != mine[i % count]) throw std::runtime_error("replicas differ in " + parameter.name);
    }
  }
}

double DeviceTrainer::accuracy(const Dataset& data) {
  const lockstep::Stream stream = compute_stream_.stream;
  lockstep::device::copy(images_.get(), data.images.data(), data.images.size() * sizeof(float), stream);
  const float* const there = network_.forward(images_.get(), data.size());
  std::vector<float> logits(data.size() * kClasses);
  lockstep::device::copy(logits.data(), there, logits.size() * sizeof(float), stream);
  lockstep::device::synchronize(stream);
  return static_cast<double>(count_correct(logits, data.labels)) / static_cast<double>(data.size());
}

}  // namespace digits
