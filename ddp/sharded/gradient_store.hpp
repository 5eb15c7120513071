// GradientStore: where gradients wait to be reduced, and where this rank's shards of the result are.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ddp/registered_block.hpp"
#include "ddp/sharded/shard_layout.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::internal {

/// Buckets of f32 and their reduce_scatters. Not thread-safe.
class GradientStore {
 public:
  virtual ~GradientStore() = default;

  /// Where bucket `b` is filled; null after a failure.
  virtual float* bucket(std::size_t b) = 0;
  /// This rank's shard of bucket `b`: the result once await_all() returned.
  virtual float* shard(std::size_t b) const = 0;
  /// Starts the reduce_scatter of a full bucket; keeps a failure for await_all().
  virtual void start(std::size_t b, ReduceOp op) = 0;
  /// Ends the step: no operation touches the buckets any more. The first error since the last call.
  virtual std::optional<Error> await_all() = 0;

  virtual std::size_t lasting_bytes() const noexcept = 0;
  virtual std::size_t in_flight_bytes() const noexcept = 0;
};

/// Whole buckets that last, reduced in place.
std::unique_ptr<GradientStore> make_whole_store(Communicator& communicator, const ShardLayout& layout);
/// Shards that last, and buckets that are lent for the time from the first gradient to the end of the
/// reduction.
std::unique_ptr<GradientStore> make_lending_store(Communicator& communicator, const ShardLayout& layout);

}  // namespace lockstep::internal
