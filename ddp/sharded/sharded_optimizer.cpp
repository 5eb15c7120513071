// ShardedOptimizer: buckets are reduce_scattered as backward fills them, each rank steps its shards, and
// all_gathers bring the new values back while the next forward runs. Reduction starts in plan order and
// gathering in the opposite one, on every rank: backward needs the last layers first, forward the first.
#include "lockstep/ddp/sharded_optimizer.hpp"

#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "ddp/bucket_gaps.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/parameter_check.hpp"
#include "ddp/ready_tracker.hpp"
#include "ddp/sharded/gradient_store.hpp"
#include "lib/base/hash.hpp"
#include "lockstep/ddp/gradient_norm.hpp"

namespace lockstep {
namespace {

using internal::GradientStore;
using internal::ReadyTracker;
using internal::ShardLayout;

constexpr std::size_t kMaxNamesInMessage = 8;

/// Gradients that the caller keeps may be cut; views of gradients and values lie in one piece.
ReducerOptions plan_options(const ShardedOptions& options) {
  const bool cut = options.stage == ZeroStage::gradients && !options.values_as_views;
  return {.bucket_bytes = options.bucket_bytes,
          .first_bucket_bytes = options.first_bucket_bytes,
          .gradients_as_views = options.stage == ZeroStage::optimizer,
          .average = options.average,
          .split_large = cut};
}

/// All ranks have rank 0's optimizer and stage.
void check_settings(Communicator& communicator, const Optimizer& optimizer, const ShardedOptions& options) {
  const std::string text = optimizer.name() + ", stage " + std::to_string(static_cast<int>(options.stage));
  const std::uint64_t mine = internal::fnv1a(text);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(&mine, all.data(), 1, DataType::u64);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw Error(ErrorCode::mismatch,
                "ShardedOptimizer: rank " + std::to_string(r) +
                    " has another optimizer or stage than rank 0; this rank has " + text +
                    "; use the same on every rank",
                static_cast<int>(r));
  }
}

/// The same verdict on every rank, since their lists are equal.
void check_types(std::span<const Parameter> parameters) {
  for (const Parameter& parameter : parameters) {
    if (parameter.type == DataType::f32) continue;
    throw Error(ErrorCode::not_supported,
                "ShardedOptimizer: " + internal::describe(parameter) +
                    " is not f32; shard f32 parameters, and use a Reducer for others");
  }
}

}  // namespace

struct ShardedOptimizer::State {
  State(Communicator& c, std::span<const Parameter> p, std::shared_ptr<const Optimizer> o,
        const ShardedOptions& given);

  void broadcast_values();
  void check_index(const char* call, std::size_t parameter) const;
  std::string marking(std::size_t parameter) const {
    return "mark_ready(" + std::to_string(parameter) + "): \"" + parameters[parameter].name + '"';
  }
  void copy_in(std::size_t parameter);
  void start_full_buckets();
  void start_next();
  void start_gather(std::size_t bucket);
  void await_gather(std::size_t bucket);
  void copy_out(std::size_t bucket);
  std::string missing_message(const std::vector<std::size_t>& missing) const;
  void abandon();

  float* bucket_values(std::size_t b) const { return reinterpret_cast<float*>(values.part(b)); }
  float* shard_values(std::size_t b) const {
    return bucket_values(b) + static_cast<std::size_t>(communicator.rank()) * layout.shard(b);
  }
  float* shard_slot(std::size_t slot, std::size_t b) const {
    return reinterpret_cast<float*>(slots.part(slot * layout.buckets() + b));
  }
  std::vector<std::size_t> bytes_of_buckets() const;
  std::vector<std::size_t> bytes_of_slots() const;

  Communicator& communicator;
  const std::vector<Parameter> parameters;
  const std::shared_ptr<const Optimizer> optimizer;
  const ShardedOptions options;
  const BucketPlan plan;
  const ShardLayout layout;
  const std::size_t slot_count;
  internal::RegisteredBlock
      values;  // Of each bucket, padded: whole, and this rank's shard is the one it steps.
  internal::RegisteredBlock slots;  // This rank's shards, slot by slot.
  std::unique_ptr<GradientStore> gradients;
  ReadyTracker tracker;

  std::mutex mutex;                          // Guards the store and the next one while backward runs.
  std::size_t started = 0;                   // Reductions of this step, in plan order.
  std::vector<std::optional<Work>> gathers;  // Of each bucket: values on their way.
  std::uint64_t steps = 0;
};

ShardedOptimizer::State::State(Communicator& c, std::span<const Parameter> p,
                               std::shared_ptr<const Optimizer> o, const ShardedOptions& given)
    : communicator(c),
      parameters(p.begin(), p.end()),
      optimizer(std::move(o)),
      options(given),
      plan(plan_buckets(p, plan_options(given))),
      layout(plan, p.size(), c.size()),
      slot_count(optimizer->slots().size()),
      values(bytes_of_buckets()),
      slots(bytes_of_slots()),
      gradients(given.stage == ZeroStage::optimizer ? internal::make_whole_store(c, layout)
                                                    : internal::make_lending_store(c, layout)),
      tracker(plan, p.size()),
      gathers(plan.buckets.size()) {}

std::vector<std::size_t> ShardedOptimizer::State::bytes_of_buckets() const {
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < layout.buckets(); ++b) bytes.push_back(layout.padded(b) * sizeof(float));
  return bytes;
}

std::vector<std::size_t> ShardedOptimizer::State::bytes_of_slots() const {
  std::vector<std::size_t> bytes;
  for (std::size_t s = 0; s < slot_count; ++s) {
    for (std::size_t b = 0; b < layout.buckets(); ++b) bytes.push_back(layout.shard(b) * sizeof(float));
  }
  return bytes;
}

ShardedOptimizer::ShardedOptimizer(Communicator& communicator, std::span<const Parameter> parameters,
                                   std::shared_ptr<const Optimizer> optimizer,
                                   const ShardedOptions& options) {
  internal::check_parameters(communicator, parameters, plan_options(options));
  check_settings(communicator, *optimizer, options);
  check_types(parameters);
  try {
    state_ = std::make_unique<State>(communicator, parameters, std::move(optimizer), options);
  } catch (const Error& error) {  // No memory here, while the peers are on their way to the broadcast.
    communicator.abort("ShardedOptimizer on rank " + std::to_string(communicator.rank()) + ": " +
                       error.what());
    throw;
  }
  state_->broadcast_values();
}

ShardedOptimizer::~ShardedOptimizer() {
  if (state_) state_->abandon();
}

ShardedOptimizer::ShardedOptimizer(ShardedOptimizer&&) noexcept = default;

void ShardedOptimizer::State::broadcast_values() {
  constexpr int kRoot = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto* from = static_cast<const float*>(parameters[i].value);
    for (const ShardLayout::Place& place : layout.places(i)) {
      std::copy_n(from + place.part.first, place.part.count, bucket_values(place.bucket) + place.part.offset);
    }
  }
  for (std::size_t b = 0; b < layout.buckets(); ++b) {
    communicator.broadcast(bucket_values(b), layout.padded(b), DataType::f32, kRoot);
    copy_out(b);
  }
}

void ShardedOptimizer::State::check_index(const char* call, std::size_t parameter) const {
  if (parameter < parameters.size()) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + "(" + std::to_string(parameter) + "): there are " +
                  std::to_string(parameters.size()) +
                  " parameters, numbered from 0; pass an index of the list given");
}

float* ShardedOptimizer::gradient(std::size_t parameter) const {
  const State& s = *state_;
  s.check_index("gradient", parameter);
  if (s.options.stage == ZeroStage::gradients) return static_cast<float*>(s.parameters[parameter].gradient);
  const ShardLayout::Place& place = s.layout.places(parameter).front();
  return s.gradients->bucket(place.bucket) + place.part.offset;
}

float* ShardedOptimizer::value(std::size_t parameter) const {
  const State& s = *state_;
  s.check_index("value", parameter);
  if (!s.options.values_as_views) return static_cast<float*>(s.parameters[parameter].value);
  const ShardLayout::Place& place = s.layout.places(parameter).front();
  return s.bucket_values(place.bucket) + place.part.offset;
}

void ShardedOptimizer::mark_ready(std::size_t parameter) {
  State& s = *state_;
  s.check_index("mark_ready", parameter);
  for (const ShardLayout::Place& place : s.layout.places(parameter)) {
    if (!s.gathers[place.bucket]) continue;
    throw Error(ErrorCode::invalid_argument, s.marking(parameter) +
                                                 " may still have its old value; call wait_parameters(" +
                                                 std::to_string(parameter) + ") before forward reads it");
  }
  if (s.tracker.mark(parameter) != ReadyTracker::Mark::last) {
    throw Error(ErrorCode::invalid_argument,
                s.marking(parameter) + " was already marked in step " + std::to_string(s.steps + 1) +
                    "; mark a gradient once, when it is complete, and wait() between steps");
  }
  if (s.options.stage == ZeroStage::gradients) s.copy_in(parameter);
  if (s.tracker.complete(parameter)) s.start_full_buckets();
}

/// Part by part: a bucket that this gradient alone fills starts at once, so that a large one, which is cut,
/// does not occupy many.
void ShardedOptimizer::State::copy_in(std::size_t parameter) {
  const auto* from = static_cast<const float*>(parameters[parameter].gradient);
  for (const ShardLayout::Place& place : layout.places(parameter)) {
    float* bucket = nullptr;
    {
      const std::lock_guard lock(mutex);
      bucket = gradients->bucket(place.bucket);
    }
    if (bucket != nullptr) std::copy_n(from + place.part.first, place.part.count, bucket + place.part.offset);
    if (plan.buckets[place.bucket].parts.size() > 1) continue;
    const std::lock_guard lock(mutex);
    if (started == place.bucket) start_next();
  }
}

void ShardedOptimizer::State::start_full_buckets() {
  const std::lock_guard lock(mutex);
  while (started < plan.buckets.size() && tracker.full(started)) start_next();
}

void ShardedOptimizer::State::start_next() {
  float* bucket = gradients->bucket(started);
  if (bucket != nullptr) internal::clear_gaps(plan.buckets[started].parts, bucket, layout.padded(started));
  gradients->start(started, options.average ? ReduceOp::avg : ReduceOp::sum);
  ++started;
}

std::string ShardedOptimizer::State::missing_message(const std::vector<std::size_t>& missing) const {
  std::string message = "ShardedOptimizer::wait: " + std::to_string(missing.size()) + " of " +
                        std::to_string(parameters.size()) + " gradients were not marked ready in step " +
                        std::to_string(steps + 1) + ": ";
  for (std::size_t k = 0; k < missing.size() && k < kMaxNamesInMessage; ++k) {
    message +=
        (k > 0 ? ", \"" : "\"") + parameters[missing[k]].name + "\" (" + std::to_string(missing[k]) + ")";
  }
  if (missing.size() > kMaxNamesInMessage) message += ", ...";
  return message + "; mark each one, with a gradient of zero where backward did not reach it, and wait again";
}

void ShardedOptimizer::wait() {
  State& s = *state_;
  const std::vector<std::size_t> missing = s.tracker.unmarked();
  if (!missing.empty()) throw Error(ErrorCode::invalid_argument, s.missing_message(missing));
  if (!s.tracker.settled()) {
    throw Error(ErrorCode::invalid_argument,
                "ShardedOptimizer::wait: another thread is still inside mark_ready; join it first");
  }
  s.start_full_buckets();
  const std::optional<Error> failed = s.gradients->await_all();
  s.started = 0;
  s.tracker.reset();
  if (!failed) return;
  throw Error(failed->code(), "gradients of step " + std::to_string(s.steps + 1) + ": " + failed->what(),
              failed->culprit());
}

double ShardedOptimizer::clip_gradients(double max_norm) {
  const State& s = *state_;
  std::vector<GradientSpan> spans;
  for (std::size_t b = 0; b < s.layout.buckets(); ++b) {
    spans.push_back({DataType::f32, s.gradients->shard(b), s.layout.shard(b)});
  }
  return clip_by_global_norm(spans, max_norm, &s.communicator);
}

void ShardedOptimizer::step() {
  State& s = *state_;
  ++s.steps;
  std::vector<std::span<float>> slots(s.slot_count);
  for (std::size_t b = s.layout.buckets(); b-- > 0;) {
    const std::size_t count = s.layout.shard(b);
    for (std::size_t slot = 0; slot < slots.size(); ++slot) slots[slot] = {s.shard_slot(slot, b), count};
    s.optimizer->step({s.steps, {s.shard_values(b), count}, {s.gradients->shard(b), count}, slots});
    s.start_gather(b);
  }
}

void ShardedOptimizer::State::start_gather(std::size_t bucket) {
  gathers[bucket] = communicator.all_gather_async(shard_values(bucket), bucket_values(bucket),
                                                  layout.shard(bucket), DataType::f32);
}

void ShardedOptimizer::State::await_gather(std::size_t bucket) {
  if (!gathers[bucket]) return;
  gathers[bucket]->wait();
  gathers[bucket].reset();
  copy_out(bucket);
}

void ShardedOptimizer::State::copy_out(std::size_t bucket) {
  if (options.values_as_views) return;
  for (const GradientPart& part : plan.buckets[bucket].parts) {
    std::copy_n(bucket_values(bucket) + part.offset, part.count,
                static_cast<float*>(parameters[part.parameter].value) + part.first);
  }
}

void ShardedOptimizer::wait_parameters(std::size_t parameter) {
  state_->check_index("wait_parameters", parameter);
  for (const ShardLayout::Place& place : state_->layout.places(parameter)) state_->await_gather(place.bucket);
}

void ShardedOptimizer::wait_parameters() {
  for (std::size_t b = state_->layout.buckets(); b-- > 0;) state_->await_gather(b);
}

std::vector<TensorSlice> ShardedOptimizer::slices() {
  State& s = *state_;
  const std::vector<std::string> slot_names = s.optimizer->slots();
  std::vector<TensorSlice> list;
  for (std::size_t i = 0; i < s.parameters.size(); ++i) {
    const Parameter& parameter = s.parameters[i];
    const auto add = [&](const std::string& name, const ShardLayout::Share& share, float* shard) {
      list.push_back({name, DataType::f32, parameter.shape, share.first, share.count, shard + share.offset});
    };
    for (const ShardLayout::Place& place : s.layout.places(i)) {
      const ShardLayout::Share share = s.layout.share(place, s.communicator.rank());
      add(parameter.name, share, s.shard_values(place.bucket));
      for (std::size_t slot = 0; slot < slot_names.size(); ++slot) {
        add(parameter.name + "#" + slot_names[slot], share, s.shard_slot(slot, place.bucket));
      }
    }
  }
  return list;
}

std::uint64_t ShardedOptimizer::steps() const noexcept { return state_->steps; }

void ShardedOptimizer::restored(std::uint64_t steps) {
  State& s = *state_;
  wait_parameters();
  s.steps = steps;
  for (std::size_t b = s.layout.buckets(); b-- > 0;) s.start_gather(b);
  wait_parameters();
}

/// The peers would wait in vain, and the memory is freed next, so nothing may run on it any more.
void ShardedOptimizer::State::abandon() {
  bool gathering = false;
  for (const auto& gather : gathers) gathering = gathering || gather;
  if (started == 0 && !gathering) return;
  if (started > 0) {
    communicator.abort("rank " + std::to_string(communicator.rank()) +
                       " destroyed its ShardedOptimizer in the midst of step " + std::to_string(steps + 1));
  }
  gradients->await_all();
  for (auto& gather : gathers) {
    try {
      if (gather) gather->wait();
    } catch (const Error&) {  // Ended is all that matters here.
    }
  }
}

const BucketPlan& ShardedOptimizer::plan() const noexcept { return state_->plan; }

ShardedMemory ShardedOptimizer::memory() const noexcept {
  const State& s = *state_;
  return {s.values.bytes(), s.gradients->lasting_bytes(), s.gradients->in_flight_bytes(), s.slots.bytes()};
}

}  // namespace lockstep
