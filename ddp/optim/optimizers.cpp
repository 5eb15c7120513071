// The optimizers that come with the library. Loops that compilers vectorise; every element by itself.
#include <cmath>

#include "ddp/exact.hpp"
#include "lockstep/ddp/optimizer.hpp"

namespace lockstep {

std::string SgdMomentum::name() const {
  return "sgd momentum " + internal::exact(momentum_) + ", decay " + internal::exact(decay_);
}

void SgdMomentum::step(const OptimizerSlice& slice) const {
  const auto rate = static_cast<float>(this->rate());
  const auto momentum = static_cast<float>(momentum_);
  const auto decay = static_cast<float>(decay_);
  float* values = slice.values.data();
  float* velocity = slice.slots[0].data();
  const float* gradients = slice.gradients.data();
  for (std::size_t i = 0; i < slice.values.size(); ++i) {
    velocity[i] = momentum * velocity[i] + (gradients[i] + decay * values[i]);
    values[i] -= rate * velocity[i];
  }
}

std::string AdamW::name() const {
  return "adamw decay " + internal::exact(decay_) + ", betas " + internal::exact(beta1_) + " " +
         internal::exact(beta2_) + ", epsilon " + internal::exact(epsilon_);
}

void AdamW::step(const OptimizerSlice& slice) const {
  const auto beta1 = static_cast<float>(beta1_), beta2 = static_cast<float>(beta2_);
  const auto rest1 = static_cast<float>(1 - beta1_), rest2 = static_cast<float>(1 - beta2_);
  const auto steps = static_cast<double>(slice.step);
  const auto correction1 = static_cast<float>(rate() / (1 - std::pow(beta1_, steps)));
  const auto correction2 = static_cast<float>(1 / (1 - std::pow(beta2_, steps)));
  const auto epsilon = static_cast<float>(epsilon_);
  const auto keep = static_cast<float>(1 - rate() * decay_);
  float* values = slice.values.data();
  float* first = slice.slots[0].data();
  float* second = slice.slots[1].data();
  const float* gradients = slice.gradients.data();
  for (std::size_t i = 0; i < slice.values.size(); ++i) {
    const float g = gradients[i];
    first[i] = beta1 * first[i] + rest1 * g;
    second[i] = beta2 * second[i] + rest2 * (g * g);
    values[i] = keep * values[i] - correction1 * first[i] / (std::sqrt(second[i] * correction2) + epsilon);
  }
}

}  // namespace lockstep
