#include "ddp/sharded/parameter_shards.hpp"

#include <algorithm>
#include <cstring>

#include "lib/reduce/convert.hpp"

namespace lockstep::internal {
namespace {

std::vector<std::size_t> bytes_of_buckets(const ShardLayout& layout) {
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < layout.buckets(); ++b) bytes.push_back(layout.bucket_bytes(b));
  return bytes;
}

std::vector<std::size_t> bytes_of_kept(const ShardLayout& layout, std::size_t slots) {
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < layout.buckets(); ++b) {
    const std::size_t one = layout.shard(b) * sizeof(float);
    bytes.insert(bytes.end(), slots, one);
    bytes.push_back(layout.type(b) == DataType::f32 ? 0 : one);
  }
  return bytes;
}

void copy_part(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // Empty parameters may have null pointers.
}

}  // namespace

ParameterShards::ParameterShards(Communicator& communicator, std::span<const Parameter> parameters,
                                 const ShardLayout& layout, const Optimizer& optimizer, bool views)
    : communicator_(communicator),
      parameters_(parameters),
      layout_(layout),
      optimizer_(optimizer),
      views_(views),
      slot_names_(optimizer.slots()),
      values_(bytes_of_buckets(layout)),
      kept_(bytes_of_kept(layout, slot_names_.size())),
      gathers_(layout.buckets()) {}

void ParameterShards::broadcast() {
  constexpr int kRoot = 0;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(parameters_[i].value);
    const std::size_t size = size_of(parameters_[i].type);
    for (const auto& [bucket, part] : layout_.places(i)) {
      copy_part(whole(bucket) + part.offset * size, from + part.first * size, part.count * size);
    }
  }
  for (std::size_t b = 0; b < layout_.buckets(); ++b) {
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
  std::vector<std::span<float>> slots;
  for (std::size_t s = 0; s < slot_names_.size(); ++s) slots.push_back(kept(b, s));
  const std::size_t count = layout_.shard(b);
  if (!has_master(b)) {
    optimizer_.step({step,
                     {reinterpret_cast<float*>(shard(b)), count},
                     {reinterpret_cast<const float*>(gradients), count},
                     slots});
  } else {
    gradients_.resize(std::max(gradients_.size(), count));
    widen(layout_.type(b), gradients, gradients_.data(), count, 1);
    optimizer_.step({step, master(b), {gradients_.data(), count}, slots});
    narrow(layout_.type(b), master(b).data(), shard(b), count, 1);
  }
  start_gather(b);
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
    copy_part(to + part.first * size, whole(b) + part.offset * size, part.count * size);
  }
}

std::vector<TensorSlice> ParameterShards::slices() const {
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
        add(parameter.name + "#" + slot_names_[s], DataType::f32, kept(b, s).data());
      }
      if (has_master(b)) add(parameter.name + "#master", DataType::f32, master(b).data());
    }
  }
  return list;
}

}  // namespace lockstep::internal
