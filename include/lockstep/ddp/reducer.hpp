// Reducer: averages gradients over all ranks while backward runs.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "lockstep/communicator.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/reducer_options.hpp"
#include "lockstep/ddp/statistics.hpp"
#include "lockstep/export.hpp"

namespace lockstep {

/// Averages gradients over all ranks while backward runs. Construct once; then per step: run backward,
/// calling mark_ready(i) when gradient i is complete; wait(); step the optimizer. docs/ddp.md is the guide.
///
/// Thread safety: gradient(), mark_ready() and plan() from any thread at any time; wait(), statistics(),
/// moves and destruction from one thread at a time. An invalid_argument from mark_ready() or wait() changes
/// nothing: the step can go on.
class LOCKSTEP_API Reducer {
 public:
  /// Collective. Checks that all ranks have the same names, shapes, types and options: Error(mismatch), on
  /// every rank, names the first difference and the rank; an unusable parameter (null pointer, integer type)
  /// of one rank is an error on all that names it. Then every rank's values become rank 0's. `communicator`
  /// and the values must outlive the reducer.
  Reducer(Communicator& communicator, std::span<const Parameter> parameters,
          const ReducerOptions& options = {});
  /// Local. In the midst of a step it aborts the communicator: the peers wait for this rank's gradients.
  ~Reducer();
  Reducer(Reducer&&) noexcept;

  /// Where gradient i lives. With views: in its bucket, aligned to BucketPlan::kAlignment, zero at first,
  /// valid for the reducer's life. Without: Parameter::gradient. Throws on a bad index.
  void* gradient(std::size_t parameter) const;

  /// Gradient i is complete; it must not be touched until wait() returned. Callable from any thread, once per
  /// parameter and step. The last gradient of a bucket starts its all_reduce, which then progresses on the
  /// library's thread. Buckets start in plan order on all ranks whatever the order of calls. Throws on a bad
  /// index, or on a second call in one step. A collective that fails here is reported by wait().
  void mark_ready(std::size_t parameter);

  /// Ends the step: returns when all gradients are averaged. A parameter that was never marked is
  /// Error(invalid_argument) that names it; mark it and wait again. A failed collective throws its Error
  /// after every bucket came to rest; the gradients are then undefined.
  void wait();

  const BucketPlan& plan() const noexcept;
  StepStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
