#include "examples/gpt/adamw.hpp"

#include <cmath>

namespace gpt {

AdamW::AdamW(std::vector<Tensor*> tensors, const AdamWOptions& options)
    : tensors_(std::move(tensors)), options_(options) {
  for (const Tensor* tensor : tensors_)
    moments_.push_back({Floats(tensor->value.size()), Floats(tensor->value.size())});
}

void AdamW::step() {
  ++steps_;
  const AdamWOptions& o = options_;
  // The moments start at zero; this undoes their bias towards it.
  const float mean_correction = 1.0f - std::pow(o.beta1, static_cast<float>(steps_));
  const float square_correction = 1.0f - std::pow(o.beta2, static_cast<float>(steps_));
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    Tensor& tensor = *tensors_[t];
    auto& [mean, square] = moments_[t];
    const float keep = tensor.shape.size() > 1 ? 1.0f - o.rate * o.decay : 1.0f;
    for (std::size_t i = 0; i < tensor.value.size(); ++i) {
      const float g = tensor.gradient[i];
      mean[i] = o.beta1 * mean[i] + (1.0f - o.beta1) * g;
      square[i] = o.beta2 * square[i] + (1.0f - o.beta2) * g * g;
      const float direction =
          mean[i] / mean_correction / (std::sqrt(square[i] / square_correction) + o.epsilon);
      tensor.value[i] = keep * tensor.value[i] - o.rate * direction;
    }
  }
}

}  // namespace gpt
