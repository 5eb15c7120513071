// ParameterShards: the values that all ranks share, this rank's shards of them with what its optimizer keeps,
// and the all_gathers that make stepped shards whole again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp/registered_block.hpp"
#include "ddp/sharded/settings_check.hpp"
#include "ddp/sharded/shard_layout.hpp"
#include "lockstep/communicator.hpp"
#include "lockstep/ddp/optimizer.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/tensor_slice.hpp"

namespace lockstep::internal {

/// Kept of a parameter beside the optimizer's slots.
inline constexpr const char* kMasterName = "master";
inline constexpr const char* kJoinedName = "joined";
std::vector<std::string> all_kept(const Optimizer& optimizer);

/// One thread at a time. All ranks start gathers in the same order. The references outlive it.
class ParameterShards {
 public:
  /// Of no parameters yet. `rules` steps each, all as `optimizer` has slots. `views`: the caller reads values
  /// here, and Parameter::value is not written to.
  ParameterShards(Communicator& communicator, const ShardLayout& layout, const Optimizer& optimizer,
                  const Rules& rules, bool views);
  /// Returns when no gather runs on its memory any more.
  ~ParameterShards();
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;

  /// The layout has got `buckets` more, in front of the others, after `steps` steps; nothing moves.
  /// `parameters` are all of them. Throws Error(out_of_memory).
  void add(std::span<const Parameter> parameters, std::size_t buckets, std::uint64_t steps);
  /// Collective: everyone's values in the first `buckets` become rank 0's.
  void broadcast(std::size_t buckets);
  /// Where parameter i is in its bucket; of views, which are whole.
  std::byte* value(std::size_t parameter) const;

  /// Steps this rank's shard of a bucket by its gradients, then starts to gather everyone's. `step` counts
  /// from 1; an optimizer is told how many steps the parameters themselves have seen.
  void step(std::size_t bucket, std::uint64_t step, std::byte* gradients);
  void start_gather(std::size_t bucket);
  bool gathering(std::size_t bucket) const { return gathers_[bucket].has_value(); }
  /// The bucket's values are there. Throws the Error of its all_gather.
  void await(std::size_t bucket);

  /// This rank's shards of values and of what the optimizer keeps, and when parameters have joined.
  std::vector<TensorSlice> slices();
  /// Collective: the slices were filled. All ranks know what rank 0 has read; begins to gather the values.
  void restored();
  std::size_t value_bytes() const;
  std::size_t optimizer_bytes() const;

 private:
  /// Of buckets that came together.
  struct Memory {
    RegisteredBlock values;  // Of each bucket, whole.
    RegisteredBlock kept;
    std::size_t buckets = 0;
  };
  struct Place {
    const Memory* memory;
    std::size_t bucket;
  };
  Place place(std::size_t b) const;
  std::byte* whole(std::size_t b) const { return place(b).memory->values.part(place(b).bucket); }
  std::byte* shard(std::size_t b) const { return whole(b) + layout_.shard_offset(b); }
  /// What is kept for each element of a shard: the slots, and behind them, for values of fewer than 32 bits,
  /// the values in f32.
  std::span<float> kept(std::size_t b, std::size_t which) const {
    const auto [memory, own] = place(b);
    return {reinterpret_cast<float*>(memory->kept.part(own * (slot_names_.size() + 1) + which)),
            layout_.shard(b)};
  }
  std::span<float> master(std::size_t b) const { return kept(b, slot_names_.size()); }
  bool has_master(std::size_t b) const { return layout_.type(b) != DataType::f32; }
  void copy_out(std::size_t bucket);
  /// Of a shard, what one optimizer steps in one go.
  struct Run {
    const Optimizer* rule;
    std::uint64_t joined;  // After so many steps. Who shares a bucket may have joined in different runs.
    std::size_t first, count;
  };
  std::vector<Run> runs(std::size_t b) const;

  Communicator& communicator_;
  std::span<const Parameter> parameters_;
  const ShardLayout& layout_;
  const Rules& rules_;
  const bool views_;
  const std::vector<std::string> slot_names_;
  std::vector<std::unique_ptr<Memory>> memory_;  // The last that came hold the first buckets.
  std::size_t first_joined_ = 0;                 // Parameters from this one on came later:
  std::vector<std::uint64_t> joined_;            // by parameter, after how many steps.
  std::vector<std::optional<Work>> gathers_;     // Of each bucket: values on their way.
  std::vector<float> gradients_;                 // Of a shard with a master, as f32.
};

}  // namespace lockstep::internal
