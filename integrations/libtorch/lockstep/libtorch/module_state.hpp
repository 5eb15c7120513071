// ModuleState: what a LibtorchReducer keeps of its module: the reducer, views of the buckets, and a hook on
// every parameter.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/communicator.hpp"
#include "lockstep/ddp/reducer.hpp"
#include "lockstep/libtorch/module_tensors.hpp"

namespace lockstep::libtorch {

class ModuleState {
 public:
  ModuleState(Communicator& communicator, const torch::nn::Module& module, ReducerOptions options)
      : module_(module),
        tensors_(described(communicator, module, options)),
        reducer_(communicator, tensors_.parameters, followed(std::move(options))),
        marked_(tensors_.trained.size(), 0) {
    reducer_.broadcast(tensors_.others);
    look_at_buckets();
    for (std::size_t i = 0; i < tensors_.trained.size(); ++i) hook(i);
  }
  ~ModuleState() {
    for (const Hooked& h : hooked_) h.accumulator->del_post_hook(h.key);
    await_late();
    for (std::size_t i = 0; i < views_.size(); ++i) {  // The buckets go; gradients stay.
      torch::Tensor& gradient = tensors_.trained[i].mutable_grad();
      if (is_view(gradient, i)) gradient = gradient.clone();
    }
  }
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  void wait() {
    const std::uint64_t steps = reducer_.steps();
    reducer_.wait();
    if (reducer_.steps() == steps) return;  // Within no_sync() gradients stay as they are.
    for (std::size_t i = 0; i < views_.size(); ++i) {
      torch::Tensor& gradient = tensors_.trained[i].mutable_grad();
      if (reducer_.used(i)) {
        gradient = views_[i];
      } else if (marked_[i] != 0) {  // Frozen: an optimizer would step it by what this rank alone has.
        gradient.reset();
      }
      marked_[i] = 0;
    }
  }

  void broadcast_buffers(int root) { reducer_.broadcast(describe_buffers(module_), root); }

  Reducer& reducer() noexcept { return reducer_; }
  const std::vector<torch::Tensor>& parameters() const noexcept { return tensors_.trained; }

 private:
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));
  struct Hooked {
    Accumulator accumulator;  // A tensor only knows it while somebody holds it.
    std::uintptr_t key;
  };

  /// Runs when backward has added a parameter's gradient to grad().
  class Mark : public torch::autograd::FunctionPostHook {
   public:
    Mark(ModuleState& state, std::size_t parameter) : state_(state), parameter_(parameter) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      state_.mark(parameter_);
      return outputs;
    }

   private:
    ModuleState& state_;
    std::size_t parameter_;
  };

  static ModuleTensors described(Communicator& communicator, const torch::nn::Module& module,
                                 const ReducerOptions& options) {
    try {
      if (!options.gradients_as_views)
        throw Error(ErrorCode::invalid_argument, "gradients are views here; leave gradients_as_views true");
      return ModuleTensors(module);
    } catch (const Error& e) {
      const std::string text = std::string("LibtorchReducer: ") + e.what();
      communicator.abort(text);
      throw Error(e.code(), text, communicator.rank());
    }
  }

  /// Whoever allows the buckets to be laid out anew has the views follow.
  ReducerOptions followed(ReducerOptions options) {
    if (options.gradients_moved)
      options.gradients_moved = [this, told = std::move(options.gradients_moved)] {
        look_at_buckets();
        told();
      };
    return options;
  }

  void look_at_buckets() {
    std::vector<torch::Tensor> views;
    for (std::size_t i = 0; i < tensors_.trained.size(); ++i) {
      torch::Tensor& parameter = tensors_.trained[i];
      views.push_back(torch::from_blob(reducer_.gradient(i), parameter.sizes(), parameter.strides(),
                                       parameter.options()));
      if (!views_.empty() && is_view(parameter.grad(), i)) parameter.mutable_grad() = views.back();
    }
    views_ = std::move(views);
  }

  void hook(std::size_t parameter) {
    Accumulator accumulator = torch::autograd::impl::grad_accumulator(tensors_.trained[parameter]);
    const std::uintptr_t key = accumulator->add_post_hook(std::make_unique<Mark>(*this, parameter));
    hooked_.push_back({std::move(accumulator), key});
  }

  /// Gradients that overlap_forward left on their way have come; in a forked child, which gets none, they do
  /// not. Where the group ended before, what is there is undefined.
  void await_late() noexcept try {
    if (::getpid() == process_) reducer_.wait_gradients();
  } catch (const Error&) {
  }

  bool is_view(const torch::Tensor& gradient, std::size_t parameter) const {
    return gradient.defined() && gradient.has_storage() && gradient.is_alias_of(views_[parameter]);
  }

  /// The gradient is complete, in the bucket or, where grad() was empty, elsewhere.
  void mark(std::size_t parameter) {
    const torch::NoGradGuard numbers_only;
    torch::Tensor& gradient = tensors_.trained[parameter].mutable_grad();
    if (!gradient.defined()) {
      views_[parameter].zero_();
    } else if (!is_view(gradient, parameter)) {
      if (gradient.layout() != torch::kStrided)
        refuse(tensors_.parameters[parameter].name, "has a sparse gradient; make it dense");
      views_[parameter].copy_(gradient);
    }
    gradient = views_[parameter];
    marked_[parameter] = 1;
    reducer_.mark_ready(parameter);
  }

  const pid_t process_ = ::getpid();
  const torch::nn::Module& module_;
  ModuleTensors tensors_;
  Reducer reducer_;
  std::vector<torch::Tensor> views_;
  std::vector<char> marked_;  // In this step, by one thread each.
  std::vector<Hooked> hooked_;
};

}  // namespace lockstep::libtorch
