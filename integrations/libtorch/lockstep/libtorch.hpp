// LibtorchReducer: data-parallel training of a torch::nn::Module, PyTorch's C++ interface (LibTorch), on
// CPUs.
//
//   auto ranks = lockstep::Communicator::create();
//   lockstep::LibtorchReducer reducer(ranks, *model);
//   for (auto& batch : my_batches) {
//     optimizer.zero_grad();
//     loss_of(model->forward(batch)).backward();  // Gradients are averaged over all ranks while it runs.
//     reducer.wait();
//     optimizer.step();
//   }
//
// docs/libtorch.md is the guide. The program that includes this header compiles it; the library itself knows
// nothing of PyTorch.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "lockstep/libtorch/module_state.hpp"

namespace lockstep {

/// Averages the gradients of a module's parameters over all ranks while backward() runs, as Reducer does,
/// whose contracts hold: backward() marks each gradient when it is complete. Gradients live in the reducer's
/// buckets: grad() of a parameter is a view of one, also after zero_grad() took it away (its default); with
/// zero_grad(false) backward adds to it in place, which spares a copy.
///
/// The parameters that require a gradient when this is constructed take part, one that the module has under
/// several names under the first. The module must outlive this object, and stay on the CPU and of its types
/// and shapes. A parameter that is given other memory (by torch::load) is in its own again, with its new
/// values, when wait() returns. When this goes, gradients are copied out of the buckets, which go with it.
///
/// What one rank refuses (a sparse gradient, a parameter or a buffer that has changed) throws
/// Error(invalid_argument) there and aborts the communicator, with the reason for the peers.
///
/// Thread safety: as Reducer.
class LibtorchReducer {
 public:
  /// Collective, as Reducer's constructor, with its errors: all parameters and buffers become rank 0's. What
  /// cannot take part (libtorch::describe says which tensors; gradients that are no views) is refused.
  LibtorchReducer(Communicator& communicator, const torch::nn::Module& module, ReducerOptions options = {})
      : state_(std::make_unique<libtorch::ModuleState>(communicator, module, std::move(options))) {}

  /// Ends the step: all gradients are averaged, as Reducer::wait() says. A parameter that another rank
  /// reached and this one did not (ReducerOptions::find_unused) then has a gradient, too; a frozen one that
  /// backward reached (Reducer::freeze) has none, so that optimizers pass it over.
  void wait() { state_->wait(); }

  /// Collective; between steps. The module's buffers (running statistics) become those of rank `root`.
  void broadcast_buffers(int root = 0) { state_->broadcast_buffers(root); }

  /// For all else: begin_step(), no_sync(), clip_gradients(), used(), slices(), report(). It numbers the
  /// parameters as parameters() does.
  Reducer& reducer() noexcept { return state_->reducer(); }
  const std::vector<torch::Tensor>& parameters() const noexcept { return state_->parameters(); }

 private:
  std::unique_ptr<libtorch::ModuleState> state_;  // Hooks of the parameters point at it.
};

}  // namespace lockstep
