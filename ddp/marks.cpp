#include "ddp/marks.hpp"

#include <new>
#include <thread>

#include "lib/net/fd.hpp"

namespace lockstep::internal {

void require_index(const char* call, std::size_t parameter, std::size_t parameters) {
  if (parameter < parameters) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + "(" + std::to_string(parameter) + "): the reducer has " +
                  std::to_string(parameters) +
                  " parameters, numbered from 0; pass an index of the list it was built with");
}

void require_own_process(const char* call, const std::string& owner) {
  if (!in_forked_child()) return;
  throw Error(ErrorCode::not_supported,
              std::string(call) + ": this process was forked from the one that made the " + owner +
                  ", and has no connections; let children load data, and train in their parent");
}

void require_finds_unused(const ReducerOptions& options, std::size_t i) {
  if (options.find_unused) return;
  throw Error(ErrorCode::invalid_argument,
              "mark_unused(" + std::to_string(i) + ") needs the option find_unused, on all ranks");
}

namespace {

[[noreturn]] void refuse_surplus_mark(StepState& step, bool in_graph, const char* call, std::size_t i,
                                      std::span<const Parameter> parameters, int rank) {
  const Trouble trouble = in_graph ? Trouble::marked_twice : Trouble::not_in_graph;
  step.trouble.set(trouble, i);
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + "(" + std::to_string(i) + "): \"" + parameters[i].name + "\" was " +
                  (in_graph ? "already marked in " : "not marked in the first step, but in ") + step.name() +
                  "; " + advice(trouble),
              rank);
}

void settle_learned(StepState& step, ReadyTracker& tracker,
                    const std::function<void(std::size_t)>& contribute) {
  for (std::size_t i = 0; i < step.has_gradient.size(); ++i) {
    if (tracker.has_gradient(i)) step.note_gradient(i);
    if (tracker.expects(i) && step.has_gradient[i] != 0) contribute(i);
  }
  tracker.adopt();
}

}  // namespace

bool count_mark(StepState& step, ReadyTracker& tracker, const char* call, std::size_t i, bool has_gradient,
                std::span<const Parameter> parameters, int rank) {
  switch (tracker.mark(i, has_gradient)) {
    case ReadyTracker::Mark::awaited:
      return false;
    case ReadyTracker::Mark::last:  // Of any kind: it delivers what others have brought.
      if (tracker.has_gradient(i)) step.note_gradient(i);
      return true;
    case ReadyTracker::Mark::surplus:
      refuse_surplus_mark(step, true, call, i, parameters, rank);
    case ReadyTracker::Mark::unexpected:
      refuse_surplus_mark(step, false, call, i, parameters, rank);
    case ReadyTracker::Mark::late:
      refuse_late_mark(call, i, parameters, rank);
  }
  return false;
}

void refuse_late_mark(const char* call, std::size_t i, std::span<const Parameter> parameters, int rank) {
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + "(" + std::to_string(i) + "): \"" + parameters[i].name +
                  "\" came after wait() had been called, and counts for nothing; end every thread that marks "
                  "before wait()",
              rank);
}

void end_marks(StepState& step, PlanInUse& plan, std::mutex& mutex) noexcept {
  plan.tracker.close();
  {
    const std::lock_guard lock(mutex);  // A mark may still look for full buckets.
    step.closed = true;
  }
  while (!step.cut_short && !plan.tracker.settled()) std::this_thread::yield();
}

void settle_marks(StepState& step, PlanInUse& plan, bool find_unused,
                  const std::function<void(std::size_t)>& contribute) {
  if (step.shadowing) return;
  if (plan.learning) {
    settle_learned(step, plan.tracker, contribute);
    plan.learning = false;
    return;
  }
  if (step.cut_short) throw std::bad_alloc();
  for (const std::size_t i : plan.tracker.unmarked()) {
    if (plan.tracker.has_gradient(i)) step.note_gradient(i);  // Of some marks, and others lack.
    if (!find_unused) {
      step.missing.push_back(i);
    } else if (step.has_gradient[i] != 0) {
      contribute(i);  // From a micro-batch before.
    }
  }
  if (!step.missing.empty()) step.trouble.set(Trouble::not_marked, step.missing.front());
}

std::string reason_of_abandoned(const StepState& step, std::span<const Parameter> parameters,
                                const std::string& owner, int rank) {
  StepRecord record;
  step.trouble.write_to(record);
  const std::string reason =
      "rank " + std::to_string(rank) + " destroyed its " + owner + " in the midst of " + step.name();
  if (record.trouble == Trouble::none) return reason;
  return reason + ", in which it " + describe(record, parameters);
}

}  // namespace lockstep::internal
