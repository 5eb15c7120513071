#include "examples/gpt/model.hpp"

#include <algorithm>
#include <cmath>

#include "examples/gpt/block.hpp"

namespace gpt {
namespace {

/// Mean of -log softmax(row)[target], and its gradient by the logits.
double cross_entropy(const Floats& logits, std::span<const int> targets, Floats& gradient) {
  const std::size_t classes = logits.size() / targets.size();
  const float share = 1.0f / static_cast<float>(targets.size());
  gradient.resize(logits.size());
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const float* row = &logits[r * classes];
    float* out = &gradient[r * classes];
    const float largest = *std::max_element(row, row + classes);  // Subtracted, so that exp cannot overflow.
    float sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += out[c] = std::exp(row[c] - largest);
    for (std::size_t c = 0; c < classes; ++c) out[c] *= share / sum;
    const auto target = static_cast<std::size_t>(targets[r]);
    out[target] -= share;
    loss += std::log(static_cast<double>(sum)) - (row[target] - largest);
  }
  return loss / static_cast<double>(targets.size());
}

}  // namespace

Model::Model(const Config& config, std::uint64_t seed)
    : config_(config),
      character_embedding_("characters", {config.vocabulary, config.width}),
      position_embedding_("positions", {config.length, config.width}) {
  Random random(seed);
  random.fill(character_embedding_.value, config.deviation);
  random.fill(position_embedding_.value, config.deviation);
  for (std::size_t b = 0; b < config.blocks; ++b) {
    layers_.push_back(std::make_unique<Block>("block" + std::to_string(b), config.width, config.heads,
                                              config.length, config.deviation, config.blocks, random));
  }
  layers_.push_back(std::make_unique<LayerNorm>("norm", config.width));
  layers_.push_back(
      std::make_unique<Linear>("logits", config.width, config.vocabulary, config.deviation, random));
}

std::vector<Tensor*> Model::tensors() {
  std::vector<Tensor*> all{&character_embedding_, &position_embedding_};
  for (const auto& layer : layers_) {
    for (Tensor* tensor : layer->tensors()) all.push_back(tensor);
  }
  return all;
}

const Floats& Model::forward(std::span<const int> characters) {
  characters_.assign(characters.begin(), characters.end());
  logits_ = embed(characters);
  for (const auto& layer : layers_) logits_ = layer->forward(logits_);
  return logits_;
}

double Model::loss(const Batch& batch) {
  return cross_entropy(forward(batch.characters), batch.targets, loss_by_logits_);
}

void Model::backward(const std::function<void(std::size_t)>& ready) {
  std::size_t tensor = tensors().size();
  Floats delta = loss_by_logits_;
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    delta = (*layer)->backward(delta);
    for (std::size_t n = (*layer)->tensors().size(); n > 0; --n) ready(--tensor);
  }
  embed_backward(delta);
  while (tensor > 0) ready(--tensor);
}

Floats Model::embed(std::span<const int> characters) const {
  const std::size_t width = config_.width;
  Floats rows(characters.size() * width);
  for (std::size_t r = 0; r < characters.size(); ++r) {
    const float* character = &character_embedding_.value[static_cast<std::size_t>(characters[r]) * width];
    const float* position = &position_embedding_.value[r % config_.length * width];
    for (std::size_t c = 0; c < width; ++c) rows[r * width + c] = character[c] + position[c];
  }
  return rows;
}

void Model::embed_backward(const Floats& delta) {
  const std::size_t width = config_.width;
  for (Tensor* table : {&character_embedding_, &position_embedding_})
    std::fill(table->gradient.begin(), table->gradient.end(), 0.0f);
  for (std::size_t r = 0; r < characters_.size(); ++r) {
    float* character = &character_embedding_.gradient[static_cast<std::size_t>(characters_[r]) * width];
    float* position = &position_embedding_.gradient[r % config_.length * width];
    for (std::size_t c = 0; c < width; ++c) {
      character[c] += delta[r * width + c];
      position[c] += delta[r * width + c];
    }
  }
}

}  // namespace gpt
