#include "ddp/step_verdict.hpp"

#include <algorithm>

namespace lockstep::internal {

void require_good_step(ClosingExchange& closing, std::span<const std::size_t> missing,
                       std::span<const Parameter> parameters, const std::string& step_name) {
  const auto records = closing.records();
  const auto bad = std::find_if(records.begin(), records.end(),
                                [](const StepRecord& r) { return r.trouble != Trouble::none; });
  if (bad == records.end()) return;
  std::vector<std::vector<std::size_t>> sets;
  if (bad->trouble == Trouble::not_marked) sets = closing.gather_sets(missing);
  const Status status = judge(records, sets, parameters);
  if (bad->trouble == Trouble::not_finite) {
    throw NonFiniteGradient("gradients of " + step_name + ": " + status.message(), status.culprit(),
                            bad->parameter);
  }
  status.throw_if_error();
}

}  // namespace lockstep::internal
