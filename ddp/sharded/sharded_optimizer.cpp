// ShardedOptimizer: a reducer whose buckets are reduce_scattered as backward fills them; each rank steps its
// shards, and all_gathers bring the new values back while the next forward runs. Reduction starts in plan
// order and gathering in the opposite one, on every rank: backward needs the last layers first, forward the
// first.
#include "lockstep/ddp/sharded_optimizer.hpp"

#include <iterator>
#include <utility>

#include "collectives/communicator_core.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/parameter_check.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/sharded/parameter_shards.hpp"
#include "ddp/sharded/scatter_carriers.hpp"
#include "ddp/sharded/settings_check.hpp"
#include "ddp/telling_peers.hpp"
#include "lockstep/ddp/gradient_norm.hpp"

namespace lockstep {
namespace {

using internal::PartPlace;
using internal::ShardLayout;

constexpr const char* kOwner = "ShardedOptimizer";  // For messages.

/// Gradients that the caller keeps may be cut; views of gradients and values lie in one piece.
ReducerOptions reducer_options(const ShardedOptions& options) {
  const bool lends = options.stage == ZeroStage::gradients;
  return {.bucket_bytes = options.bucket_bytes,
          .first_bucket_bytes = options.first_bucket_bytes,
          .gradients_as_views = !lends,
          .average = options.average,
          .weighted = options.weighted,
          .split_large = lends && !options.values_as_views,
          .rebuild = false,
          .find_unused = options.find_unused,
          .uneven = options.uneven,
          .undo = options.undo,
          .check_first = options.check_first,
          .check_finite = options.check_finite,
          .hook = options.hook};
}

}  // namespace

struct ShardedOptimizer::State {
  State(Communicator& c, std::span<const Parameter> p, std::shared_ptr<const Optimizer> o, internal::Rules r,
        const ShardedOptions& given);

  Reducer make_reducer();
  std::unique_ptr<internal::BucketCarrier> make_carrier(Reducer::State& of);
  std::byte* shard_gradients(std::size_t b) const {
    return shards != nullptr ? shards->shard(b) : reducer.state_->bucket_data(b) + layout.shard_offset(b);
  }
  BucketPlan padded_plan(std::span<const Parameter> of) const;
  void grow(std::span<const Parameter> added);
  void check_values(std::size_t parameter) const;
  void require_reduced(const char* call) const;
  void require_whole() const { reducer.state_->plan.require_whole(); }
  std::vector<TensorSlice> with_hook(std::vector<TensorSlice> of_hook);

  Communicator communicator;  // A handle of its own: the caller may move or drop the other one.
  std::vector<Parameter> parameters;
  const std::shared_ptr<const Optimizer> optimizer;
  internal::Rules rules;
  const ShardedOptions options;
  ShardLayout layout;
  internal::ParameterShards values;
  internal::ShardCarrier* shards = nullptr;  // The reducer's, when shards do not lie in its buckets.
  Reducer reducer;
  std::uint64_t steps = 0;
  bool reduced = false;  // The shards hold gradients that were not stepped yet.
};

ShardedOptimizer::State::State(Communicator& c, std::span<const Parameter> p,
                               std::shared_ptr<const Optimizer> o, internal::Rules r,
                               const ShardedOptions& given)
    : communicator(c.core().shared_from_this()),
      parameters(p.begin(), p.end()),
      optimizer(std::move(o)),
      rules(std::move(r)),
      options(given),
      layout(padded_plan(p), p.size(), c.size(), c.rank()),
      values(communicator, layout, *optimizer, rules, given.values_as_views),
      reducer(make_reducer()) {
  values.add(parameters, layout.buckets(), 0);
}

BucketPlan ShardedOptimizer::State::padded_plan(std::span<const Parameter> of) const {
  return internal::padded_for(communicator.size(), plan_buckets(of, reducer_options(options)));
}

Reducer ShardedOptimizer::State::make_reducer() {
  auto state =
      std::make_unique<Reducer::State>(communicator, parameters, reducer_options(options), layout.plan());
  state->owner = kOwner;
  state->kept = internal::all_kept(*optimizer);
  if (options.stage == ZeroStage::optimizer)
    state->memory = std::make_unique<internal::BucketMemory>(layout.plan(), parameters.size());
  state->carrier = make_carrier(*state);
  return Reducer(std::move(state));
}

std::unique_ptr<internal::BucketCarrier> ShardedOptimizer::State::make_carrier(Reducer::State& of) {
  std::unique_ptr<internal::ShardCarrier> made;
  if (options.stage == ZeroStage::gradients) {
    made = options.hook ? internal::make_lending_hook_carrier(communicator, of.clock, layout, options.hook)
                        : internal::make_lending_carrier(communicator, of.clock, layout);
  } else if (options.hook) {
    return internal::make_hook_carrier(communicator, of.clock, options.hook);
  } else if (of.undo && communicator.size() > 1) {  // Cheaper than copies of whole buckets.
    made = internal::make_scatter_carrier(communicator, of.clock, layout);
  } else {
    return internal::make_scatter_in_place_carrier(communicator, of.clock, layout);
  }
  shards = made.get();
  return made;
}

ShardedOptimizer::ShardedOptimizer(Communicator& communicator, std::span<const Parameter> parameters,
                                   std::shared_ptr<const Optimizer> optimizer,
                                   const ShardedOptions& options) {
  internal::check_settings(communicator, optimizer.get(), options);
  internal::HookClaim claim;
  internal::telling_peers(communicator, kOwner, [&] { claim = internal::HookClaim(options.hook.get()); });
  internal::check_parameters(communicator, parameters, reducer_options(options), {kOwner, claim.problem()});
  internal::check_shardable(communicator, {}, parameters, *optimizer, options);
  internal::Rules rules = internal::rules_for(communicator, parameters, optimizer, options);
  internal::telling_peers(communicator, kOwner, [&] {
    state_ =
        std::make_unique<State>(communicator, parameters, std::move(optimizer), std::move(rules), options);
    state_->reducer.state_->hook_claim = std::move(claim);
    state_->values.broadcast(state_->layout.buckets());
    state_->reducer.state_->use_plan(internal::MarkCounts::anew);
  });
}

/// The reducer first, which tells the peers when it ends in the midst of a step.
ShardedOptimizer::~ShardedOptimizer() = default;

ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;

// ---- gradients

void* ShardedOptimizer::gradient(std::size_t parameter) const { return state_->reducer.gradient(parameter); }

void ShardedOptimizer::State::check_values(std::size_t parameter) const {
  for (const PartPlace& place : layout.places(parameter)) {
    if (!values.gathering(place.bucket)) continue;
    const std::string index = std::to_string(parameter);
    throw Error(ErrorCode::invalid_argument, "mark_ready(" + index + "): \"" + parameters[parameter].name +
                                                 "\" may still have its old value; call wait_parameters(" +
                                                 index + ") before forward reads it");
  }
}

void ShardedOptimizer::mark_ready(std::size_t parameter) {
  state_->require_whole();
  state_->reducer.state_->check_index("mark_ready", parameter);
  state_->check_values(parameter);
  state_->reducer.mark_ready(parameter);
}

void ShardedOptimizer::mark_unused(std::size_t parameter) { state_->reducer.mark_unused(parameter); }

void ShardedOptimizer::wait() {
  State& s = *state_;
  s.reduced = false;
  const std::uint64_t before = s.reducer.steps();
  s.reducer.wait();
  s.reduced = s.reducer.steps() > before;  // With no_sync nothing happens.
}

Reducer::NoSync ShardedOptimizer::no_sync() { return Reducer::NoSync(state_->reducer); }
bool ShardedOptimizer::begin_step(std::uint64_t samples) { return state_->reducer.begin_step(samples); }
bool ShardedOptimizer::used(std::size_t parameter) const { return state_->reducer.used(parameter); }

void ShardedOptimizer::State::require_reduced(const char* call) const {
  reducer.state_->require_between_steps(call);  // Backward writes where the shards may lie.
  if (reduced) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) +
                  ": there are no reduced gradients; call wait() first, outside of no_sync(), "
                  "and leave the step out when it throws");
}

double ShardedOptimizer::clip_gradients(double max_norm) {
  State& s = *state_;
  s.require_reduced("clip_gradients");
  std::vector<GradientSpan> spans;
  for (std::size_t b = 0; b < s.layout.buckets(); ++b) {
    spans.push_back({s.layout.type(b), s.shard_gradients(b), s.layout.shard(b)});
  }
  return clip_by_global_norm(spans, max_norm, &s.communicator);
}

// ---- values

void* ShardedOptimizer::value(std::size_t parameter) const {
  const State& s = *state_;
  s.require_whole();
  s.reducer.state_->check_index("value", parameter);
  return s.options.values_as_views ? s.values.value(parameter) : s.parameters[parameter].value;
}

void ShardedOptimizer::step() {
  State& s = *state_;
  s.require_reduced("step");
  s.reduced = false;
  ++s.steps;
  internal::telling_peers(s.communicator, "ShardedOptimizer::step", [&] {
    for (std::size_t b = s.layout.buckets(); b-- > 0;) {
      s.values.await(b);  // A rank without data has not read them.
      s.values.step(b, s.steps, s.shard_gradients(b));
    }
  });
}

void ShardedOptimizer::wait_parameters(std::size_t parameter) {
  State& s = *state_;
  s.require_whole();
  s.reducer.state_->check_index("wait_parameters", parameter);
  for (const PartPlace& place : s.layout.places(parameter)) s.values.await(place.bucket);
}

void ShardedOptimizer::wait_parameters() {
  state_->require_whole();
  for (std::size_t b = state_->layout.buckets(); b-- > 0;) state_->values.await(b);
}

// ---- parameters that join

void ShardedOptimizer::add_parameters(std::span<const Parameter> added) {
  State& s = *state_;
  s.reducer.state_->require_between_steps("add_parameters");
  s.reducer.state_->require_usable();
  wait_parameters();
  internal::check_joining(s.communicator, s.parameters, added, reducer_options(s.options), {kOwner});
  if (added.empty()) return;
  internal::check_shardable(s.communicator, s.parameters, added, *s.optimizer, s.options);
  const internal::Rules rules = internal::rules_for(s.communicator, added, s.optimizer, s.options);
  s.reduced = false;  // A step that was left out.
  s.reducer.state_->plan.change(s.communicator, "ShardedOptimizer::add_parameters", [&] {
    s.rules.insert(s.rules.end(), rules.begin(), rules.end());
    s.grow(added);
  });
}

void ShardedOptimizer::State::grow(std::span<const Parameter> added) {
  Reducer::State& inside = *reducer.state_;
  const BucketPlan more = internal::numbered_from(parameters.size(), padded_plan(added));
  inside.grow(added, more, [&] {
    parameters.insert(parameters.end(), added.begin(), added.end());
    layout = ShardLayout(inside.plan.layout, parameters.size(), communicator.size(), communicator.rank());
    values.add(parameters, more.buckets.size(), steps);
    inside.carrier = make_carrier(inside);
    values.broadcast(more.buckets.size());
  });
}

// ---- checkpoints, and what happened

std::vector<TensorSlice> ShardedOptimizer::State::with_hook(std::vector<TensorSlice> of_hook) {
  require_whole();
  std::vector<TensorSlice> list = values.slices();
  std::move(of_hook.begin(), of_hook.end(), std::back_inserter(list));
  return list;
}

std::vector<TensorSlice> ShardedOptimizer::slices() { return state_->with_hook(state_->reducer.slices()); }
std::vector<TensorSlice> ShardedOptimizer::slices(const CheckpointInfo& saved) {
  return state_->with_hook(state_->reducer.slices(saved));
}

std::uint64_t ShardedOptimizer::steps() const noexcept { return state_->steps; }

void ShardedOptimizer::restored(std::uint64_t steps) {
  State& s = *state_;
  wait_parameters();
  s.reducer.restored(steps);  // It may refuse.
  s.steps = steps;
  s.reduced = false;  // What was, is of the run before.
  s.values.restored();
  wait_parameters();
}

const BucketPlan& ShardedOptimizer::plan() const noexcept { return state_->layout.plan(); }
StepStatistics ShardedOptimizer::statistics() const { return state_->reducer.statistics(); }
std::string ShardedOptimizer::report() const { return state_->reducer.report(); }

ShardedMemory ShardedOptimizer::memory() const noexcept {
  const State& s = *state_;
  const auto& buckets = s.reducer.state_->memory;
  const std::size_t shards = s.shards != nullptr ? s.shards->shard_bytes() : 0;
  return {.values = s.values.value_bytes(),
          .gradients = buckets ? buckets->bytes() : shards,
          .undo = s.reducer.undo_bytes() + (buckets ? shards : 0),
          .in_flight = s.shards != nullptr ? s.shards->most_lent_bytes() : 0,
          .optimizer = s.values.optimizer_bytes()};
}

}  // namespace lockstep
