// Plans of a Reducer: the first, that of the observed order, that without frozen parameters.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ddp/bucket_plan.hpp"
#include "ddp/reducer_state.hpp"
#include "lib/base/hash.hpp"

namespace lockstep {
namespace {

/// Who decides where one rank must.
constexpr int kRoot = 0;

/// memcpy, but an empty parameter may have null pointers.
void copy_tensor(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

/// The buckets have the layout of the parameters, so they carry the values once before they carry gradients.
void Reducer::State::broadcast_values() {
  const bool root = communicator.rank() == kRoot;
  if (root) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      copy_tensor(memory->place(i).data, parameters[i].value, memory->place(i).bytes);
    }
  }
  for (const BucketPlan::Bucket& bucket : layout.buckets) {
    communicator.broadcast(memory->start_of(bucket), bucket.count, bucket.type, kRoot);
  }
  if (!root) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      copy_tensor(parameters[i].value, memory->place(i).data, memory->place(i).bytes);
    }
  }
  memory->clear();
}

/// `layout` or `frozen` changed.
void Reducer::State::use_plan() {
  plan = internal::without_frozen(layout, frozen);
  plan_bytes = 0;
  for (const BucketPlan::Bucket& bucket : plan.buckets) plan_bytes += internal::gradient_bytes(bucket);
  places = internal::places_of(plan, parameters.size());
  tracker = std::make_unique<internal::ReadyTracker>(plan, parameters.size());
  learning = options.static_graph;
  if (learning) tracker->learn();
  clock.set_buckets(plan.buckets.size());
  if (undo) undo->attach(plan);
  internal::HookState::Values kept;
  if (attached) kept = hook_state.take();
  carrier->attach(plan, parameters);
  if (attached) hook_state.put(kept);
  attached = true;
}

void Reducer::State::restored(std::uint64_t steps) {
  require_between_steps("restored");
  hook_state.restored(options.average);
  step.number = steps + 1;
}

/// In wait(), after the step whose order was observed: the averages move along.
void Reducer::State::rebuild() {
  std::vector<std::size_t> agreed = order.take();
  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  communicator.broadcast(agreed.data(), agreed.size(), DataType::u64, kRoot);
  BucketPlan next = internal::plan_in_order(parameters, options, agreed);
  if (next == layout) return;
  auto moved = std::make_unique<internal::BucketMemory>(next, parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    copy_tensor(moved->place(i).data, memory->place(i).data, memory->place(i).bytes);
  }
  memory = std::move(moved);
  layout = std::move(next);
  const auto before = std::move(tracker);
  use_plan();
  tracker->adopt(*before);  // What a static graph has learned still holds.
  tracker->reset();
  learning = false;
  if (options.gradients_as_views && options.gradients_moved) options.gradients_moved();
}

void Reducer::State::freeze(std::span<const std::size_t> list) {
  require_between_steps("freeze");
  std::vector<bool> next(parameters.size());
  bool valid = true;
  for (const std::size_t i : list) {
    valid &= i < next.size();
    if (i < next.size()) next[i] = true;
  }
  // An index that does not exist makes the list differ from any other.
  std::uint64_t hash = internal::hash_combine(internal::kFnvOffset, valid ? 1 : 0);
  for (const bool bit : next) hash = internal::hash_combine(hash, bit ? 1 : 0);
  const auto hashes = closing.gather_words({&hash, 1});
  const auto odd = std::find_if(hashes.begin(), hashes.end(), [&](auto h) { return h != hashes[0]; });
  if (odd != hashes.end()) {
    const int rank = static_cast<int>(odd - hashes.begin());
    throw Error(ErrorCode::mismatch,
                "freeze: rank " + std::to_string(rank) + " has another list than rank 0; pass equal lists",
                rank);
  }
  if (!valid) check_index("freeze", *std::max_element(list.begin(), list.end()));
  if (next == frozen) return;
  frozen = std::move(next);
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    if (frozen[i]) memory->clear(i);
  }
  use_plan();
}

}  // namespace lockstep
