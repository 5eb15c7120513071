#include "ddp/hook_state.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "ddp/bucket_plan.hpp"

namespace lockstep::internal {
namespace {

std::size_t elements_of(const TensorSlice& slice) {
  return std::accumulate(slice.shape.begin(), slice.shape.end(), std::size_t{1}, std::multiplies<>());
}

float* values_of(const HookTensor& tensor) { return static_cast<float*>(tensor.slice.data); }

/// The slice as that of `rank` among `ranks` that have a tensor of this name each.
TensorSlice stacked(TensorSlice slice, int rank, int ranks) {
  slice.first += static_cast<std::size_t>(rank) * elements_of(slice);
  slice.shape.insert(slice.shape.begin(), static_cast<std::size_t>(ranks));
  return slice;
}

TensorSlice without_elements(TensorSlice slice) {
  slice.first = slice.count = 0;
  slice.data = nullptr;
  return slice;
}

}  // namespace

std::vector<HookTensor> HookState::tensors() const {
  return hook_ != nullptr ? hook_->state() : std::vector<HookTensor>{};
}

void HookState::require_own_names(std::span<const Parameter> parameters,
                                  std::span<const std::string> kept) const {
  if (hook_ == nullptr) return;
  std::unordered_map<std::string, const Parameter*> taken;
  for (const Parameter& parameter : parameters) {
    taken.emplace(parameter.name, &parameter);
    for (const std::string& what : kept) taken.emplace(kept_name(parameter, what), &parameter);
  }
  for (const HookTensor& tensor : tensors()) {
    const auto other = taken.find(tensor.slice.name);
    if (other == taken.end()) continue;
    throw Error(ErrorCode::invalid_argument,
                "checkpoints would have two tensors \"" + other->first + "\": what hook \"" + hook_->name() +
                    "\" keeps, and that of parameter " + describe(*other->second) + "; rename one of them");
  }
}

std::vector<TensorSlice> HookState::to_save() const {
  std::vector<TensorSlice> list;
  if (ranks_ == 1) return list;  // One rank sends nothing, so nothing is left behind.
  for (const HookTensor& tensor : tensors()) {
    if (tensor.of_each_rank) {
      list.push_back(stacked(tensor.slice, rank_, ranks_));
    } else {
      list.push_back(rank_ == 0 ? tensor.slice : without_elements(tensor.slice));
    }
  }
  return list;
}

std::vector<TensorSlice> HookState::to_load(int saved_by) {
  std::vector<TensorSlice> list;
  saved_by_ = saved_by;
  taken_over_.clear();
  if (saved_by == 1) return list;
  for (const HookTensor& tensor : tensors()) {
    if (!tensor.of_each_rank) {
      list.push_back(ranks_ > 1 ? tensor.slice : without_elements(tensor.slice));
    } else if (saved_by == ranks_) {
      list.push_back(stacked(tensor.slice, rank_, ranks_));
    } else {
      add_taken_over(list, tensor, saved_by);
    }
  }
  return list;
}

void HookState::add_taken_over(std::vector<TensorSlice>& list, const HookTensor& tensor, int saved_by) {
  list.push_back(stacked(without_elements(tensor.slice), 0, saved_by));  // Every rank names every tensor.
  if (ranks_ == 1) return;
  for (int from = rank_; from < saved_by; from += ranks_) {
    taken_over_.push_back({values_of(tensor), std::vector<float>(tensor.slice.count)});
    TensorSlice slice = stacked(tensor.slice, from, saved_by);
    slice.data = taken_over_.back().from.data();
    list.push_back(std::move(slice));
  }
}

void HookState::restored(bool average) {
  kept_.clear();  // Of the run before.
  const int saved_by = std::exchange(saved_by_, 0);
  if (saved_by == 0 || saved_by == ranks_) return;  // Nothing was loaded, or it is in place.
  if (ranks_ > 1) {
    for (const HookTensor& tensor : tensors()) {
      if (tensor.of_each_rank) std::fill_n(values_of(tensor), tensor.slice.count, 0.0f);
    }
  }
  const float factor = average ? static_cast<float>(ranks_) / static_cast<float>(saved_by) : 1.0f;
  for (const auto& [to, from] : taken_over_) {
    for (std::size_t i = 0; i < from.size(); ++i) to[i] += from[i] * factor;
  }
  taken_over_.clear();
}

void HookState::take() {
  for (const HookTensor& tensor : tensors()) {
    if (tensor.slice.data == nullptr) continue;
    std::vector<float>& whole = kept_[tensor.slice.name];
    whole.resize(elements_of(tensor.slice));
    std::copy_n(values_of(tensor), tensor.slice.count, whole.data() + tensor.slice.first);
  }
}

void HookState::put() {
  const std::vector<HookTensor> now = tensors();
  for (const HookTensor& tensor : now) {
    const auto kept = kept_.find(tensor.slice.name);
    if (tensor.slice.data == nullptr || kept == kept_.end()) continue;
    std::copy_n(kept->second.data() + tensor.slice.first, tensor.slice.count, values_of(tensor));
  }
  for (const HookTensor& tensor : now) kept_.erase(tensor.slice.name);  // Parts of one have one name.
}

}  // namespace lockstep::internal
