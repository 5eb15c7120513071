// GradientHook: tells when backward has come to a parameter.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace lockstep::libtorch {

/// Calls `reached` when backward has added the parameter's gradient to grad(), or has none for it, where that
/// is what it computed. It is in two places: what torch keeps with the tensor remains when the tensor gets
/// other memory (torch::load), but not every version tells it of a gradient that is none. What it keeps with
/// the node that accumulates, and runs after it, tells of that; it goes with the node, and renew() puts it
/// back.
class GradientHook {
 public:
  GradientHook(torch::Tensor parameter, std::function<void()> reached)
      : parameter_(std::move(parameter)), reached_(std::move(reached)) {
    auto with_others = std::make_unique<OfTensor>(*this, std::move(on_tensor()));
    on_tensor() = std::move(with_others);
    renew();
  }
  ~GradientHook() {
    accumulator_->del_post_hook(key_);
    if (auto* own = dynamic_cast<OfTensor*>(on_tensor().get())) on_tensor() = std::move(own->before);
  }
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;

  void renew() {
    Accumulator accumulator = torch::autograd::impl::grad_accumulator(parameter_);
    if (accumulator == accumulator_) return;
    if (accumulator_) accumulator_->del_post_hook(key_);
    key_ = accumulator->add_post_hook(std::make_unique<OfNode>(*this));
    accumulator_ = std::move(accumulator);
    told_ = false;
  }

 private:
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));
  using Place = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;

  struct OfTensor : torch::autograd::PostAccumulateGradHook {
    OfTensor(GradientHook& o, Place b) : owner(o), before(std::move(b)) {}
    void operator()(const torch::Tensor& parameter) override {
      if (before) (*before)(parameter);
      owner.reached_();
      owner.told_ = true;
    }
    GradientHook& owner;
    Place before;  // There is one place, which may be another's.
  };

  struct OfNode : torch::autograd::FunctionPostHook {
    explicit OfNode(GradientHook& o) : owner(o) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      if (!std::exchange(owner.told_, false)) owner.reached_();
      return outputs;
    }
    GradientHook& owner;
  };

  Place& on_tensor() { return torch::autograd::impl::post_acc_grad_hooks(parameter_); }

  const torch::Tensor parameter_;
  const std::function<void()> reached_;
  Accumulator accumulator_;  // A tensor only knows it while somebody holds it.
  std::uintptr_t key_ = 0;
  bool told_ = false;  // By the tensor's, in this backward; by one thread.
};

}  // namespace lockstep::libtorch
