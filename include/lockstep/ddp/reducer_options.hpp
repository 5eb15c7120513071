// ReducerOptions: what a Reducer may be asked to do differently.
#pragma once

#include <cstddef>
#include <memory>

namespace lockstep {

class CommunicationHook;

struct ReducerOptions {
  std::size_t bucket_bytes = 25u << 20;       ///< Cap of a bucket.
  std::size_t first_bucket_bytes = 1u << 20;  ///< Cap of the first: communication starts early.
  bool gradients_as_views = true;  ///< Gradients live in the buckets: no copy. May differ between ranks.
  bool average = true;             ///< Divide by the world size; false sums.
  /// How buckets travel; null: as they are, by all_reduce. Of the same kind on all ranks, and of one reducer.
  std::shared_ptr<CommunicationHook> hook = nullptr;
};

}  // namespace lockstep
