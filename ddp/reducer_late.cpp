// Buckets that wait() left on their way: with ReducerOptions::overlap_forward the next forward waits for
// them, one by one.
#include <algorithm>

#include "ddp/bucket_plan.hpp"
#include "ddp/reducer_state.hpp"

namespace lockstep {

/// Whether the step under way ends before its buckets do. All ranks decide alike. Buckets that are about to
/// be laid out anew come to rest first; where there are none (all parameters are frozen) it ends at once.
bool Reducer::State::leaves_buckets() const {
  return options.overlap_forward && !plan.buckets().empty() && !plan.rebuilds_after(step.number);
}

void Reducer::State::leave_buckets() {
  late.assign(plan.buckets().size(), 1);
  late_buckets = plan.buckets().size();
  clock.wait_left();
}

/// Backward is about to write where peers' gradients may still arrive.
void Reducer::State::require_nothing_late() const {
  if (late_buckets == 0) return;
  const std::size_t b = static_cast<std::size_t>(std::find(late.begin(), late.end(), 1) - late.begin());
  const std::string& name = parameters[plan.buckets()[b].parts.front().parameter].name;
  throw Error(ErrorCode::invalid_argument,
              step.name() + " began before the gradient of \"" + name +
                  "\" of the step before was waited for; call wait_gradients() before backward",
              communicator.rank());
}

void Reducer::State::wait_gradients(std::size_t parameter) {
  if (late_failure) throw *late_failure;
  if (late_buckets == 0) return;
  for (const internal::PartPlace& place : plan.places[parameter]) await(place.bucket);
}

void Reducer::State::wait_gradients() {
  if (late_failure) throw *late_failure;
  for (std::size_t b = late.size(); b-- > 0 && late_buckets > 0;) await(b);
}

void Reducer::State::await(std::size_t bucket) {
  if (late_buckets == 0 || late[bucket] == 0) return;
  const internal::Nanos from = internal::real_env().now();
  try {
    carrier->await(bucket);
  } catch (const Error& error) {
    static_cast<void>(carrier->finish());
    late_buckets = 0;
    const std::string where = "gradients of step " + std::to_string(step.number - 1) + ": ";
    late_failure.emplace(error.code(), where + error.what(), error.culprit());
    throw *late_failure;
  }
  copy_back(plan.buckets()[bucket]);
  clock.waited_later(internal::real_env().now() - from);
  late[bucket] = 0;
  if (--late_buckets > 0) return;
  static_cast<void>(carrier->finish());  // All have ended well.
  note_statistics(step.number - 1);
}

}  // namespace lockstep
