// Loans: memory for buckets that do not last, lent from their first gradient to the end of their reduction.
#pragma once

#include <optional>
#include <vector>

#include "ddp/registered_block.hpp"
#include "ddp/sharded/shard_layout.hpp"
#include "lib/base/status.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::internal {

/// As many reductions run at once before a bucket waits for the oldest: one on the wire, one behind it, so
/// that the wire never idles.
inline constexpr std::size_t kMostInFlight = 2;

/// One thread at a time.
class Loans {
 public:
  explicit Loans(const ShardLayout& layout);

  bool lent(std::size_t bucket) const { return lent_[bucket].has_value(); }
  bool any_free() const { return !free_.empty(); }
  /// The bucket's memory, a new block when none is free; the error when there is none to be had.
  Result<std::byte*> lend(std::size_t bucket);
  void take_back(std::size_t bucket);
  void take_back_all();
  /// Of all blocks made so far.
  std::size_t bytes() const { return made_ * loan_bytes_; }

 private:
  std::size_t loan_bytes_ = 0;  // All have the size of the largest bucket.
  std::size_t made_ = 0;
  std::vector<RegisteredBlock> free_;
  std::vector<std::optional<RegisteredBlock>> lent_;
};

/// lend() has failed: this rank will not start the bucket's reduction, for which its peers would wait.
/// Revokes the communicator; returns this rank's error.
Error end_for_lack_of_memory(Communicator& communicator, std::size_t bucket, const Status& why);

}  // namespace lockstep::internal
