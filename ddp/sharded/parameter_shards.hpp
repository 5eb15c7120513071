// ParameterShards: the values that all ranks share, this rank's shards of them with what its optimizer keeps,
// and the all_gathers that make stepped shards whole again.
#pragma once

#include <optional>
#include <vector>

#include "ddp/registered_block.hpp"
#include "ddp/sharded/shard_layout.hpp"
#include "lockstep/communicator.hpp"
#include "lockstep/ddp/optimizer.hpp"
#include "lockstep/ddp/tensor_slice.hpp"

namespace lockstep::internal {

/// One thread at a time. All ranks start gathers in the same order. The references outlive it.
class ParameterShards {
 public:
  /// `views`: the caller reads values here, and Parameter::value is not written to.
  ParameterShards(Communicator& communicator, std::span<const Parameter> parameters,
                  const ShardLayout& layout, const Optimizer& optimizer, bool views);
  /// Returns when no gather runs on its memory any more.
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  /// Collective: everyone's values become rank 0's.
  void broadcast();
  /// Where parameter i is in its bucket; of views, which are whole.
  std::byte* value(std::size_t parameter) const;

  /// Steps this rank's shard of a bucket by its gradients, then starts to gather everyone's.
  void step(std::size_t bucket, std::uint64_t step, std::byte* gradients);
  void start_gather(std::size_t bucket);
  bool gathering(std::size_t bucket) const { return gathers_[bucket].has_value(); }
  /// The bucket's values are there. Throws the Error of its all_gather.
  void await(std::size_t bucket);

  /// This rank's shards of values and of what the optimizer keeps.
  std::vector<TensorSlice> slices() const;
  std::size_t value_bytes() const { return values_.bytes(); }
  std::size_t optimizer_bytes() const { return kept_.bytes(); }

 private:
  std::byte* whole(std::size_t b) const { return values_.part(b); }
  std::byte* shard(std::size_t b) const { return whole(b) + layout_.shard_offset(b); }
  /// What is kept for each element of a shard: the slots, and behind them, for values of fewer than 32 bits,
  /// the values in f32.
  std::span<float> kept(std::size_t b, std::size_t which) const {
    return {reinterpret_cast<float*>(kept_.part(b * (slot_names_.size() + 1) + which)), layout_.shard(b)};
  }
  std::span<float> master(std::size_t b) const { return kept(b, slot_names_.size()); }
  bool has_master(std::size_t b) const { return layout_.type(b) != DataType::f32; }
  void copy_out(std::size_t bucket);

  Communicator& communicator_;
  const std::span<const Parameter> parameters_;
  const ShardLayout& layout_;
  const Optimizer& optimizer_;
  const bool views_;
  const std::vector<std::string> slot_names_;
  RegisteredBlock values_;  // Of each bucket, whole.
  RegisteredBlock kept_;
  std::vector<std::optional<Work>> gathers_;  // Of each bucket: values on their way.
  std::vector<float> gradients_;              // Of a shard with a master, as f32.
};

}  // namespace lockstep::internal
