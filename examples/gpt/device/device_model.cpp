#include "examples/gpt/device/device_model.hpp"

#include <cmath>

#include "lockstep/device_runtime.hpp"

namespace gpt {

DeviceModel::DeviceModel(Model& start, const Config& config, const Bench& bench)
    : config_(config),
      bench_(bench),
      embedded_(device_floats(bench.rows * config.width)),
      by_logits_(device_floats(bench.rows * config.vocabulary)),
      losses_(device_floats(bench.rows)) {
  for (const Tensor* tensor : start.tensors()) {
    DeviceTensor& mine = tensors_.emplace_back();
    mine.index = tensors_.size() - 1;
    mine.name = tensor->name;
    mine.shape = tensor->shape;
    mine.count = tensor->value.size();
    mine.value = device_floats(mine.count);
    lockstep::device::copy(mine.value.get(), tensor->value.data(), mine.count * sizeof(float), bench.stream);
  }
  lockstep::device::synchronize(bench.stream);
  for (std::size_t b = 0; b < config.blocks; ++b) add_block(config);
  DeviceTensor &scale = next(), &shift = next();
  layers_.push_back(make_norm(bench, scale, shift));
  DeviceTensor &weight = next(), &bias = next();
  layers_.push_back(make_linear(bench, weight, bias));
}

/// Tensors in the order of Block's.
void DeviceModel::add_block(const Config& config) {
  const auto pair = [&](const auto& make) {
    DeviceTensor &first = next(), &second = next();
    return make(bench_, first, second);
  };
  Layers attention, network;
  attention.push_back(pair(make_norm));
  attention.push_back(pair(make_linear));
  attention.push_back(make_attention(bench_, {config.width, config.heads, config.length}));
  attention.push_back(pair(make_linear));
  layers_.push_back(make_residual(bench_, config.width, std::move(attention)));
  network.push_back(pair(make_norm));
  const std::size_t inner = tensors_[taken_].shape[1];
  network.push_back(pair(make_linear));
  network.push_back(make_gelu(bench_, inner));
  network.push_back(pair(make_linear));
  layers_.push_back(make_residual(bench_, config.width, std::move(network)));
}

void DeviceModel::loss(const int* characters, const int* targets, float* mean) {
  characters_ = characters;
  bench_.compute.run(Embed{characters, tensors_[0].value.get(), tensors_[1].value.get(), embedded_.get(),
                           config_.width, config_.length},
                     bench_.rows * config_.width);
  const float* rows = embedded_.get();
  for (const auto& layer : layers_) rows = layer->forward(rows);
  bench_.compute.run(
      CrossEntropy{rows, targets, by_logits_.get(), losses_.get(), bench_.rows, config_.vocabulary},
      bench_.rows);
  bench_.compute.run(Mean{losses_.get(), mean, bench_.rows}, 1);
}

void DeviceModel::backward(const Ready& ready) {
  const float* delta = by_logits_.get();
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
    delta = (*layer)->backward(delta, ready);
  DeviceTensor &characters = tensors_[0], &positions = tensors_[1];
  bench_.compute.run(PositionGradients{delta, positions.gradient, bench_.rows, config_.width, config_.length},
                     positions.count);
  ready(positions);
  bench_.compute.run(CharacterGradients{characters_, delta, characters.gradient, bench_.rows, config_.width},
                     characters.count);
  ready(characters);
}

DeviceAdamW::DeviceAdamW(std::vector<DeviceTensor>& tensors, const Bench& bench, const AdamWOptions& options)
    : tensors_(tensors), bench_(bench), options_(options) {
  for (const DeviceTensor& tensor : tensors_) {
    moments_.push_back({device_floats(tensor.count), device_floats(tensor.count)});
    for (float* const one : {moments_.back().mean.get(), moments_.back().square.get()})
      lockstep::device::fill(one, 0, tensor.count * sizeof(float), bench.stream);
  }
}

void DeviceAdamW::step() {
  ++steps_;
  const AdamWOptions& o = options_;
  const float mean_correction = 1.0f - std::pow(o.beta1, static_cast<float>(steps_));
  const float square_correction = 1.0f - std::pow(o.beta2, static_cast<float>(steps_));
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    const DeviceTensor& tensor = tensors_[t];
    const float keep = tensor.shape.size() > 1 ? 1.0f - o.rate * o.decay : 1.0f;
    bench_.compute.run(
        AdamStep{tensor.value.get(), tensor.gradient, moments_[t].mean.get(), moments_[t].square.get(),
                 o.rate, o.beta1, o.beta2, o.epsilon, keep, mean_correction, square_correction},
        tensor.count);
  }
}

}  // namespace gpt
