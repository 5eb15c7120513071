#include "ddp/step_verdict.hpp"

#include <algorithm>
#include <string>

#include "ddp/replica_check.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

bool compares_replicas(const ReducerOptions& options, std::uint64_t step) {
  return options.check_replicas_every > 0 && step % options.check_replicas_every == 0;
}

/// After closing.exchange(). `missing`: what this rank should have marked.
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

}  // namespace

void judge_step(ClosingExchange& closing, const StepState& step, std::uint64_t plan, Nanos computed,
                std::span<const Parameter> parameters, const ReducerOptions& options,
                const std::function<std::vector<std::uint64_t>()>& hash_values) {
  StepRecord record;
  std::vector<std::uint64_t> hashes;
  step.trouble.write_to(record);
  record.step = hash_combine(plan, step.number);
  record.computed = computed;
  if (record.trouble == Trouble::wrong_result) {
    record.values = step.wrong_elements;
  } else if (compares_replicas(options, step.number)) {
    hashes = hash_values();
    record.values = combined(hashes);
  }
  const bool finds_unused = options.find_unused || options.static_graph;
  closing.exchange(record, finds_unused ? &step.has_gradient : nullptr);
  require_good_step(closing, step.missing, parameters, step.name());
  require_equal_replicas(closing, hashes, parameters);
}

}  // namespace lockstep::internal
