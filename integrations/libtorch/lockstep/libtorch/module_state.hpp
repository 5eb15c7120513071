// ModuleState: what a LibtorchReducer keeps of its module: the reducer, views of the buckets, and a hook on
// every parameter.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/communicator.hpp"
#include "lockstep/ddp/reducer.hpp"
#include "lockstep/libtorch/gradient_hook.hpp"
#include "lockstep/libtorch/module_tensors.hpp"
#include "lockstep/libtorch/telling_peers.hpp"

namespace lockstep::libtorch {

class ModuleState {
 public:
  ModuleState(Communicator& communicator, const torch::nn::Module& module, ReducerOptions options)
      : module_(module),
        rank_(communicator.rank()),
        tensors_(described(communicator, module, options)),
        reducer_(communicator, tensors_.parameters, followed(std::move(options))),
        marked_(tensors_.trained.size(), 0) {
    reducer_.broadcast(tensors_.others);
    for (const torch::Tensor& parameter : tensors_.trained) values_.push_back(parameter.variable_data());
    look_at_buckets();
    for (std::size_t i = 0; i < tensors_.trained.size(); ++i)
      hooks_.push_back(std::make_unique<GradientHook>(tensors_.trained[i], [this, i] { mark(i); }));
  }
  ~ModuleState() {
    hooks_.clear();
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
    telling_peers(reducer_, rank_, [this] {
      for (std::size_t i = 0; i < values_.size(); ++i) bring_back(i);
    });
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

  void broadcast_buffers(int root) {
    reducer_.broadcast(telling_peers(reducer_, rank_, [this] { return describe_buffers(module_); }), root);
  }

  Reducer& reducer() noexcept { return reducer_; }
  const std::vector<torch::Tensor>& parameters() const noexcept { return tensors_.trained; }

 private:
  static ModuleTensors described(Communicator& communicator, const torch::nn::Module& module,
                                 const ReducerOptions& options) {
    return telling_peers(communicator, communicator.rank(), [&] {
      if (!options.gradients_as_views)
        throw Error(ErrorCode::invalid_argument, "gradients are views here; leave gradients_as_views true");
      return ModuleTensors(module);
    });
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

  /// Gradients that overlap_forward left on their way have come; in a forked child, which gets none, they do
  /// not. Where the group ended before, what is there is undefined.
  void await_late() noexcept try {
    if (::getpid() == process_) reducer_.wait_gradients();
  } catch (const Error&) {
  }

  bool is_view(const torch::Tensor& gradient, std::size_t parameter) const {
    return gradient.defined() && gradient.has_storage() && gradient.is_alias_of(views_[parameter]);
  }

  /// The reducer's hooks and checks read a parameter where it was. One that has other memory since then
  /// (torch::load) gets its own again, with the values that it has now.
  void bring_back(std::size_t parameter) {
    require_kind(parameter);
    torch::Tensor& moved = tensors_.trained[parameter];
    torch::Tensor& own = values_[parameter];
    if (moved.data_ptr() == own.data_ptr() && moved.strides() == own.strides()) return;
    own.copy_(moved.detach());
    moved.set_data(own);
    hooks_[parameter]->renew();
  }

  void require_kind(std::size_t parameter) const {
    const torch::Tensor& now = tensors_.trained[parameter];
    const torch::Tensor& own = values_[parameter];
    if (now.layout() == own.layout() && now.device() == own.device() &&
        now.scalar_type() == own.scalar_type() && now.sizes() == own.sizes())
      return;
    refuse(tensors_.parameters[parameter].name, "was " + own.toString() + shape_of(own) + " and is " +
                                                    now.toString() + shape_of(now) +
                                                    " now; make a new reducer after such a change");
  }

  /// The gradient is complete, in the bucket or, where grad() was empty, elsewhere.
  void mark(std::size_t parameter) {
    telling_peers(reducer_, rank_, [&] { put(parameter); });
    reducer_.mark_ready(parameter);
  }

  void put(std::size_t parameter) {
    const torch::NoGradGuard numbers_only;
    require_kind(parameter);
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
  }

  const pid_t process_ = ::getpid();
  const torch::nn::Module& module_;
  const int rank_;
  ModuleTensors tensors_;
  std::vector<torch::Tensor> values_;  // Of the trained, where the reducer knows them.
  Reducer reducer_;
  std::vector<torch::Tensor> views_;
  std::vector<char> marked_;  // In this step, by one thread each.
  std::vector<std::unique_ptr<GradientHook>> hooks_;
};

}  // namespace lockstep::libtorch
