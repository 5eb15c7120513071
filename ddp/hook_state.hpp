// HookState: what a communication hook keeps between steps, on its way into checkpoints, out of them, and
// from one layout of the buckets to the next.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// In checkpoints, what is kept of a parameter.
inline std::string kept_name(const Parameter& parameter, const std::string& what) {
  return parameter.name + "#" + what;
}

/// In a checkpoint a tensor of which each rank has its own has one more dimension, the first: the rank.
/// Between steps only, when no thread is inside the hook.
class HookState {
 public:
  /// `hook` may be null.
  HookState(CommunicationHook* hook, int rank, int ranks) : hook_(hook), rank_(rank), ranks_(ranks) {}

  /// Throws Error(invalid_argument) when a tensor of the hook's has the name of one that checkpoints have
  /// beside it: a parameter's value, or what is `kept` of one (kept_name()).
  void require_own_names(std::span<const Parameter> parameters, std::span<const std::string> kept) const;

  std::vector<TensorSlice> to_save() const;
  /// Of a checkpoint that `saved_by` ranks wrote. With another number of ranks than this group's the slices
  /// are of memory of its own, until restored().
  std::vector<TensorSlice> to_load(int saved_by);
  /// Those slices are filled. The ranks' own tensors were dealt round robin; they add up to the same average
  /// (or sum) as before.
  void restored(bool average);

  /// Before another layout: the values of whole tensors, by name. After it: back to where they belong now.
  /// Those of parameters that are frozen wait here until they are thawed.
  void take();
  void put();

 private:
  struct TakenOver {
    float* to;
    std::vector<float> from;
  };
  std::vector<HookTensor> tensors() const;
  void add_taken_over(std::vector<TensorSlice>& list, const HookTensor& tensor, int saved_by);

  CommunicationHook* hook_;
  int rank_, ranks_;
  int saved_by_ = 0;  // Between to_load() and restored().
  std::vector<TakenOver> taken_over_;
  std::map<std::string, std::vector<float>> kept_;
};

}  // namespace lockstep::internal
