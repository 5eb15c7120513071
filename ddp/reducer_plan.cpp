// Plans of a Reducer: the first, that of the observed order, with fewer parameters and with more.
#include <utility>

#include "ddp/bucket_plan.hpp"
#include "ddp/frozen_list.hpp"
#include "ddp/parameter_check.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/telling_peers.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep {

using internal::MarkCounts;

namespace {

/// Who decides where one rank must.
constexpr int kRoot = 0;

}  // namespace

/// The buckets `of` the parameters from `first` on have the layout of their values, so they carry these once
/// before they carry gradients.
void Reducer::State::broadcast_values(const BucketPlan& of, std::size_t first) {
  const bool root = communicator.rank() == kRoot;
  for (std::size_t i = first; root && i < parameters.size(); ++i) {
    internal::copy_bytes(memory->place(i).data, parameters[i].value, memory->place(i).bytes);
  }
  for (const BucketPlan::Bucket& bucket : of.buckets) {
    communicator.broadcast(memory->start_of(bucket), bucket.count, bucket.type, kRoot);
  }
  for (std::size_t i = first; i < parameters.size(); ++i) {
    if (!root) internal::copy_bytes(parameters[i].value, memory->place(i).data, memory->place(i).bytes);
    memory->clear(i);
  }
}

/// The layout, what is frozen, or `parameters` changed.
void Reducer::State::use_plan(MarkCounts marks) {
  const std::string where = owner + "'s new buckets";
  if (attached) ask_hook(where, [this] { hook_state.take(); });  // It still looks at the plan before.
  plan.derive(marks, options.static_graph, step.number);
  if (undo) undo->attach(plan.travels);
  clock.set_buckets(plan.buckets().size());
  carrier->attach(plan.travels, parameters);
  ask_hook(where, [this] {
    hook_state.require_own_names(parameters, kept);
    if (attached) hook_state.put();
  });
  attached = true;
}

/// Throws why no step can begin any more, of which the peers know then.
void Reducer::State::require_usable() {
  plan.require_whole();
  if (!hook_failure) return;
  communicator.abort(hook_failure->what());
  throw *hook_failure;
}

/// For what it keeps: a hook may fail at it on this rank alone, while the peers go on.
void Reducer::State::ask_hook(const std::string& where, const std::function<void()>& ask) {
  if (!options.hook) return ask();
  internal::telling_peers(communicator, where + ", hook \"" + options.hook->name() + "\"", ask);
}

std::vector<TensorSlice> Reducer::State::slices(const std::function<std::vector<TensorSlice>()>& of_hook) {
  require_between_steps("slices");
  require_usable();
  std::vector<TensorSlice> list;
  ask_hook(owner + "::slices", [&] {
    hook_state.require_own_names(parameters, kept);  // It may have begun to keep it.
    list = of_hook();
  });
  return list;
}

void Reducer::State::restored(std::uint64_t steps) {
  require_between_steps("restored");
  require_usable();
  wait_gradients();
  // Weights make a sum an average.
  ask_hook(owner + "::restored", [this] { hook_state.restored(options.average && !options.weighted); });
  // By what all ranks know: one that had no data when the others learned may be learning still.
  if (plan.learns_in == step.number) plan.learns_in = steps + 1;
  step.number = steps + 1;
  step.forget_gradients();  // Of the run before.
}

/// In wait(), after the step whose order was observed. The step has ended well: a failure is one of the next.
void Reducer::State::rebuild() {
  try {
    plan.change(communicator, owner + " cannot lay out its buckets anew", [this] { lay_out_anew(); });
  } catch (const Error&) {  // It is in `plan.broken`.
  }
}

/// The averages move along.
void Reducer::State::lay_out_anew() {
  BucketPlan next =
      internal::plan_in_order(parameters, options, internal::agreed_order(plan.order, communicator));
  if (next == plan.layout) return;
  auto moved = std::make_unique<internal::BucketMemory>(next, parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    internal::copy_bytes(moved->place(i).data, memory->place(i).data, memory->place(i).bytes);
  }
  memory = std::move(moved);
  has_moved = options.gradients_as_views;
  plan.layout = std::move(next);
  use_plan(MarkCounts::kept);
}

void Reducer::State::freeze(std::span<const std::size_t> list) {
  require_between_steps("freeze");
  require_usable();
  wait_gradients();
  std::vector<bool> next = internal::agree_on_frozen(closing, list, parameters.size());
  if (next == plan.frozen) return;
  plan.change(communicator, owner + "::freeze", [&] {
    plan.frozen = std::move(next);
    for (std::size_t i = 0; i < plan.frozen.size(); ++i) {
      if (plan.frozen[i]) memory->clear(i);
    }
    use_plan(MarkCounts::anew);
  });
}

void Reducer::State::add_parameters(std::span<const Parameter> added) {
  require_between_steps("add_parameters");
  require_usable();
  wait_gradients();
  const bool may_move = internal::check_joining(communicator, parameters, added, options, {owner});
  if (added.empty()) return;
  plan.change(communicator, owner + "::add_parameters", [&] {
    const std::size_t first = parameters.size();
    const BucketPlan more = internal::numbered_from(first, plan_buckets(added, options));
    grow(added, more, [&] {
      if (options.half_in_f32) carrier = make_carrier();
      broadcast_values(more, first);
    });
    if (may_move) plan.order.observe(parameters.size());
  });
}

/// New parameters get buckets of their own, so that nothing moves. There is room for them everywhere before
/// they count.
void Reducer::State::grow(std::span<const Parameter> added, const BucketPlan& more,
                          const std::function<void()>& bring) {
  if (memory) memory->add(more, parameters.size() + added.size());
  std::vector<Parameter> all = parameters;
  all.insert(all.end(), added.begin(), added.end());
  for (const Parameter& p : added) counts.push_back(internal::element_count(p).value());
  step.resize(all.size());
  closing.resize(all.size());
  plan.grow(more, all.size());
  attached_to = std::exchange(parameters, std::move(all));
  bring();
  use_plan(MarkCounts::anew);
  attached_to.clear();
}

}  // namespace lockstep
