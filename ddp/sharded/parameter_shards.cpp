#include "ddp/sharded/parameter_shards.hpp"

#include <algorithm>

#include "ddp/hook_state.hpp"
#include "lib/net/fd.hpp"
#include "lib/reduce/convert.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep::internal {
namespace {

std::vector<std::size_t> bytes_of_buckets(const ShardLayout& layout, std::size_t buckets) {
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < buckets; ++b) bytes.push_back(layout.bucket_bytes(b));
  return bytes;
}

std::vector<std::size_t> bytes_of_kept(const ShardLayout& layout, std::size_t buckets, std::size_t slots) {
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t one = layout.shard(b) * sizeof(float);
    bytes.insert(bytes.end(), slots, one);
    bytes.push_back(layout.type(b) == DataType::f32 ? 0 : one);
  }
  return bytes;
}

}  // namespace

std::vector<std::string> all_kept(const Optimizer& optimizer) {
  std::vector<std::string> kept = optimizer.slots();
  kept.insert(kept.end(), {kMasterName, kJoinedName});
  return kept;
}

ParameterShards::ParameterShards(Communicator& communicator, const ShardLayout& layout,
                                 const Optimizer& optimizer, const Rules& rules, bool views)
    : communicator_(communicator),
      layout_(layout),
      rules_(rules),
      views_(views),
      slot_names_(optimizer.slots()) {}

void ParameterShards::add(std::span<const Parameter> parameters, std::size_t buckets, std::uint64_t steps) {
  auto memory = std::make_unique<Memory>(Memory{
      RegisteredBlock(bytes_of_buckets(layout_, buckets)),
      RegisteredBlock(bytes_of_kept(layout_, buckets, slot_names_.size())),
      buckets,
  });
  std::vector<std::optional<Work>> gathers(layout_.buckets());
  joined_.reserve(parameters.size());
  memory_.push_back(std::move(memory));  // From here on nothing fails.
  parameters_ = parameters;
  joined_.resize(parameters.size(), steps);
  if (memory_.size() == 1) first_joined_ = parameters.size();
  gathers_ = std::move(gathers);
}

ParameterShards::Place ParameterShards::place(std::size_t b) const {
  std::size_t m = memory_.size() - 1;
  for (; b >= memory_[m]->buckets; --m) b -= memory_[m]->buckets;
  return {memory_[m].get(), b};
}

void ParameterShards::broadcast(std::size_t buckets) {
  constexpr int kRoot = 0;
  for (std::size_t b = 0; b < buckets; ++b) {
    const std::size_t size = size_of(layout_.type(b));
    for (const GradientPart& part : layout_.bucket(b).parts) {
      const auto* from = static_cast<const std::byte*>(parameters_[part.parameter].value);
      copy_bytes(whole(b) + part.offset * size, from + part.first * size, part.count * size);
    }
    communicator_.broadcast(whole(b), layout_.bucket(b).count, layout_.type(b), kRoot);
    if (has_master(b)) widen(layout_.type(b), shard(b), master(b).data(), layout_.shard(b), 1);
    copy_out(b);
  }
}

std::byte* ParameterShards::value(std::size_t parameter) const {
  const auto& [bucket, part] = layout_.places(parameter).front();
  return whole(bucket) + part.offset * size_of(parameters_[parameter].type);
}

void ParameterShards::step(std::size_t b, std::uint64_t step, std::byte* gradients) {
  const std::size_t count = layout_.shard(b);
  std::span<float> values{reinterpret_cast<float*>(shard(b)), count};
  std::span<const float> wide{reinterpret_cast<const float*>(gradients), count};
  if (has_master(b)) {
    gradients_.resize(std::max(gradients_.size(), count));
    widen(layout_.type(b), gradients, gradients_.data(), count, 1);
    values = master(b);
    wide = {gradients_.data(), count};
  }
  std::vector<std::span<float>> slots(slot_names_.size());
  for (const Run& run : runs(b)) {
    for (std::size_t s = 0; s < slots.size(); ++s) slots[s] = kept(b, s).subspan(run.first, run.count);
    run.rule->step(
        {step - run.joined, values.subspan(run.first, run.count), wide.subspan(run.first, run.count), slots});
  }
  if (has_master(b)) narrow(layout_.type(b), values.data(), shard(b), count, 1);
  start_gather(b);
}

/// The whole shard: what lies between parameters goes with the one before it.
std::vector<ParameterShards::Run> ParameterShards::runs(std::size_t b) const {
  const std::size_t start = layout_.shard_start(b), end = start + layout_.shard(b);
  std::vector<Run> runs;
  for (const GradientPart& part : layout_.bucket(b).parts) {
    const Optimizer* const rule = rules_[part.parameter].get();
    const std::uint64_t joined = joined_[part.parameter];
    if (part.offset <= start) runs.clear();
    const bool goes_on = !runs.empty() && runs.back().rule == rule && runs.back().joined == joined;
    if (part.offset < end && !goes_on)
      runs.push_back({rule, joined, std::max(part.offset, start) - start, 0});
  }
  for (std::size_t r = 0; r < runs.size(); ++r)
    runs[r].count = (r + 1 < runs.size() ? runs[r + 1].first : end - start) - runs[r].first;
  return runs;
}

void ParameterShards::start_gather(std::size_t b) {
  gathers_[b] = communicator_.all_gather_async(shard(b), whole(b), layout_.shard(b), layout_.type(b));
}

void ParameterShards::await(std::size_t b) {
  if (!gathers_[b]) return;
  gathers_[b]->wait();
  gathers_[b].reset();
  copy_out(b);
}

ParameterShards::~ParameterShards() {
  if (in_forked_child()) return;  // The gathers are its parent's.
  for (auto& gather : gathers_) {
    try {
      if (gather) gather->wait();
    } catch (const Error&) {  // Ended is all that matters here.
    }
  }
}

void ParameterShards::copy_out(std::size_t b) {
  if (views_) return;
  const std::size_t size = size_of(layout_.type(b));
  for (const GradientPart& part : layout_.bucket(b).parts) {
    auto* to = static_cast<std::byte*>(parameters_[part.parameter].value);
    copy_bytes(to + part.first * size, whole(b) + part.offset * size, part.count * size);
  }
}

std::size_t ParameterShards::value_bytes() const {
  std::size_t bytes = 0;
  for (const auto& memory : memory_) bytes += memory->values.bytes();
  return bytes;
}

std::size_t ParameterShards::optimizer_bytes() const {
  std::size_t bytes = 0;
  for (const auto& memory : memory_) bytes += memory->kept.bytes();
  return bytes;
}

void ParameterShards::restored() {
  constexpr int kRoot = 0;
  const std::size_t later = joined_.size() - first_joined_;
  if (later > 0) communicator_.broadcast(joined_.data() + first_joined_, later, DataType::u64, kRoot);
  for (std::size_t b = layout_.buckets(); b-- > 0;) start_gather(b);
}

std::vector<TensorSlice> ParameterShards::slices() {
  std::vector<TensorSlice> list;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    for (const PartPlace& place : layout_.places(i)) {
      const ShardLayout::Share share = layout_.share(place);
      const auto add = [&](const std::string& name, DataType type, void* data) {
        auto* first = static_cast<std::byte*>(data) + share.offset * size_of(type);
        list.push_back({name, type, parameter.shape, share.first, share.count, first});
      };
      const std::size_t b = place.bucket;
      add(parameter.name, parameter.type, shard(b));
      for (std::size_t s = 0; s < slot_names_.size(); ++s) {
        add(kept_name(parameter, slot_names_[s]), DataType::f32, kept(b, s).data());
      }
      if (has_master(b)) add(kept_name(parameter, kMasterName), DataType::f32, master(b).data());
    }
    if (i < first_joined_) continue;
    const std::size_t count = communicator_.rank() == 0 ? 1 : 0;
    list.push_back({kept_name(parameter, kJoinedName), DataType::u64, {1}, 0, count, &joined_[i]});
  }
  return list;
}

}  // namespace lockstep::internal
