// What a ScriptedTraining trains with on the host: a Reducer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep::testing {

class HostSide {
 public:
  /// `communicator` outlives it. `tolerance`: nothing where a hook rounds what travels.
  HostSide(Communicator& communicator, ReducerOptions options, std::optional<double> tolerance)
      : communicator_(communicator), options_(std::move(options)), tolerance_(tolerance) {}

  void add(const std::vector<DataType>& types, const std::vector<std::size_t>& elements) {
    std::vector<Parameter> list;
    for (std::size_t k = 0; k < types.size(); ++k) {
      const std::size_t bytes = elements[k] * size_of(types[k]);
      values_.emplace_back(bytes);
      gradients_.emplace_back(options_.gradients_as_views ? 0 : bytes);
      void* const gradient = options_.gradients_as_views ? nullptr : gradients_.back().data();
      list.push_back({"p" + std::to_string(values_.size() - 1),
                      types[k],
                      {elements[k]},
                      values_.back().data(),
                      gradient});
    }
    reducer_ ? reducer_->add_parameters(list) : void(reducer_.emplace(communicator_, list, options_));
  }
  void* gradient(std::size_t i) { return reducer_->gradient(i); }
  void give(std::size_t) {}
  auto no_sync() { return reducer_->no_sync(); }
  bool begin_step(std::uint64_t samples) { return reducer_->begin_step(samples); }
  void freeze(const std::vector<std::size_t>& list) { reducer_->freeze(list); }
  bool used(std::size_t i) const { return reducer_->used(i); }
  void mark_ready(std::size_t i) { reducer_->mark_ready(i); }
  void mark_unused(std::size_t i) { reducer_->mark_unused(i); }
  void wait() {
    reducer_->wait();
    if (options_.overlap_forward) reducer_->wait_gradients();
  }
  bool undoes() const { return true; }
  std::optional<double> tolerance(DataType type) const {
    return tolerance_ ? std::optional(size_of(type) < 4 ? 0.2 : *tolerance_) : std::nullopt;
  }
  const BucketPlan& plan() const { return reducer_->plan(); }

 private:
  Communicator& communicator_;
  const ReducerOptions options_;
  const std::optional<double> tolerance_;
  std::vector<std::vector<std::byte>> values_, gradients_;
  std::optional<Reducer> reducer_;
};

}  // namespace lockstep::testing
