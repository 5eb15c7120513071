#include "ddp/open_step.hpp"

#include <algorithm>

#include "ddp/sample_weight.hpp"

namespace lockstep::internal {

bool open_step(StepState& step, ClosingExchange& closing, std::uint64_t samples, int rank,
               const ReducerOptions& options) {
  const auto all = closing.gather_words({&samples, 1});
  const auto without = static_cast<std::size_t>(std::count(all.begin(), all.end(), std::uint64_t{0}));
  if (without == all.size() || (without > 0 && options.uneven == UnevenInputs::stop)) return false;
  step.opened = true;
  step.shadowing = samples == 0;
  if (options.weighted) {
    const SampleWeight weight = weight_of(all, rank, options.average);
    step.average = weight.average;
    step.factor = weight.factor;
  }
  return true;
}

}  // namespace lockstep::internal
