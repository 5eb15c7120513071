// Reducer: construction, and the way from the public calls to the inside.
#include <algorithm>
#include <utility>

#include "collectives/communicator_core.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/parameter_check.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/settled_options.hpp"
#include "ddp/telling_peers.hpp"
#include "lib/net/fd.hpp"
#include "lockstep/ddp/checkpoint.hpp"

namespace lockstep {

NonFiniteGradient::NonFiniteGradient(const std::string& message, int culprit, std::size_t parameter)
    : Error(ErrorCode::invalid_argument, message, culprit), parameter_(parameter) {}

namespace {

std::vector<std::size_t> counts_of(std::span<const Parameter> parameters) {
  std::vector<std::size_t> counts;
  for (const Parameter& p : parameters) counts.push_back(internal::element_count(p).value());
  return counts;
}

}  // namespace

std::unique_ptr<internal::BucketCarrier> Reducer::State::make_carrier() {
  if (options.hook) return internal::make_hook_carrier(communicator, clock, options.hook);
  const auto is_half = [](const Parameter& parameter) { return internal::widens(parameter.type); };
  if (options.half_in_f32 && std::any_of(parameters.begin(), parameters.end(), is_half)) {
    widening = std::make_shared<internal::WideningHook>();
    return internal::make_hook_carrier(communicator, clock, widening);
  }
  return internal::make_direct_carrier(communicator, clock, options.overlap_forward);
}

Reducer::State::State(Communicator& c, std::span<const Parameter> p, const ReducerOptions& o,
                      const BucketPlan& plan_of_all)
    : communicator(c.core().shared_from_this()),
      options(o),
      parameters(p.begin(), p.end()),
      counts(counts_of(p)),
      closing(communicator, p.size(), o.overlap_forward),
      hook_state(o.hook.get(), c.rank(), c.size()) {
  plan.grow(plan_of_all, p.size());
  step.resize(p.size());
  step.average = o.average;
  const bool judges_before = checks_first() && !o.hook;  // What a hook does wrong shows only afterwards.
  if (o.gradients_as_views && o.undo && !judges_before) undo.emplace();
}

Reducer::Reducer(Communicator& communicator, std::span<const Parameter> parameters,
                 const ReducerOptions& given) {
  const ReducerOptions options = internal::settled(communicator, given);
  internal::HookClaim claim;
  internal::telling_peers(communicator, "Reducer", [&] { claim = internal::HookClaim(options.hook.get()); });
  const bool may_move =
      internal::check_parameters(communicator, parameters, options, {"Reducer", claim.problem()});
  internal::telling_peers(communicator, "Reducer", [&] {
    state_ = std::make_unique<State>(communicator, parameters, options, plan_buckets(parameters, options));
    state_->hook_claim = std::move(claim);
    state_->memory = std::make_unique<internal::BucketMemory>(state_->plan.layout, parameters.size());
    state_->carrier = state_->make_carrier();
    if (may_move) state_->plan.order.observe(parameters.size());
    state_->broadcast_values(state_->plan.layout, 0);
    state_->use_plan(internal::MarkCounts::anew);
  });
}

Reducer::Reducer(std::unique_ptr<State> state) : state_(std::move(state)) {}

/// A forked child lacks the threads that would have to end, and the step is its parent's.
Reducer::~Reducer() {
  if (internal::in_forked_child()) static_cast<void>(state_.release());
  if (state_) state_->abandon_step();
}

Reducer::Reducer(Reducer&&) noexcept = default;

void Reducer::abort(std::string_view reason) { state_->communicator.abort(reason); }

void* Reducer::gradient(std::size_t parameter) const {
  state_->check_index("gradient", parameter);
  return state_->gradient(parameter);
}

void Reducer::mark_ready(std::size_t parameter) { state_->mark_ready(parameter); }
void Reducer::mark_unused(std::size_t parameter) { state_->mark_unused(parameter); }
void Reducer::wait() { state_->wait(); }
void Reducer::wait_gradients(std::size_t parameter) {
  state_->check_index("wait_gradients", parameter);
  state_->wait_gradients(parameter);
}
void Reducer::wait_gradients() { state_->wait_gradients(); }
bool Reducer::begin_step(std::uint64_t samples) { return state_->begin_step(samples); }
void Reducer::freeze(std::span<const std::size_t> parameters) { state_->freeze(parameters); }
void Reducer::add_parameters(std::span<const Parameter> added) { state_->add_parameters(added); }
void Reducer::broadcast(std::span<const Parameter> tensors, int root) { state_->broadcast(tensors, root); }

bool Reducer::used(std::size_t parameter) const {
  state_->check_index("used", parameter);
  return !state_->plan.frozen[parameter] && state_->closing.used(parameter);
}

double Reducer::clip_gradients(double max_norm) {
  state_->require_between_steps("clip_gradients");
  state_->wait_gradients();
  return clip_by_global_norm(state_->gradients(), max_norm);
}

std::vector<TensorSlice> Reducer::slices() const {
  return state_->slices([&] { return state_->hook_state.to_save(); });
}
std::vector<TensorSlice> Reducer::slices(const CheckpointInfo& saved) {
  return state_->slices([&] { return state_->hook_state.to_load(saved.world_size); });
}
void Reducer::restored(std::uint64_t steps) { state_->restored(steps); }
std::uint64_t Reducer::steps() const noexcept { return state_->step.number - 1; }

std::size_t Reducer::undo_bytes() const noexcept { return state_->undo ? state_->undo->bytes() : 0; }
const BucketPlan& Reducer::plan() const noexcept { return state_->plan.travels; }
StepStatistics Reducer::statistics() const { return state_->statistics; }
std::string Reducer::report() const {
  return internal::report_of(state_->statistics, state_->communicator.rank());
}

Reducer::NoSync::NoSync(Reducer& reducer) : state_(*reducer.state_) {
  if (state_.step.marked) state_.require_between_steps("no_sync");
  state_.wait_gradients();
  ++state_.step.pauses;
}

Reducer::NoSync::~NoSync() { state_.step.end_pause(); }

}  // namespace lockstep
