// Gradient synchronisation for data-parallel training: Reducer, DistributedSampler.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/communicator.hpp"

namespace lockstep {

/// One trainable tensor. `value` (the parameter itself) and `gradient` are contiguous and belong to the caller; with
/// ReducerOptions::gradients_as_views the reducer owns the gradients and `gradient` is set by it.
struct Parameter {
  std::string name;
  DataType type = DataType::f32;
  std::vector<std::size_t> shape;
  void* value = nullptr;
  void* gradient = nullptr;
};

struct ReducerOptions {
  std::size_t bucket_bytes = 25u << 20;       ///< Cap of a bucket.
  std::size_t first_bucket_bytes = 1u << 20;  ///< Cap of the first: communication starts early.
  bool gradients_as_views = true;             ///< Gradients live in registered buckets; no copy. See Reducer::gradient().
  bool average = true;                        ///< Divide by the world size; false sums.
};

/// Which parameters travel together. Pure function of its arguments; equal on all ranks.
struct BucketPlan {
  struct Bucket {
    DataType type;
    std::vector<std::size_t> parameters;  ///< Indices, in the order in which they lie in the bucket.
    std::vector<std::size_t> offsets;     ///< In elements, of each of them.
    std::size_t count = 0;                ///< Elements in all.
  };
  std::vector<Bucket> buckets;  ///< In the order in which they are expected to become ready.
};

/// Reverse registration order (backward produces the last layer first), one type per bucket, caps as given.
LOCKSTEP_API BucketPlan plan_buckets(std::span<const Parameter> parameters, const ReducerOptions& options);

/// Times and bytes of the last step.
struct StepStatistics {
  std::uint64_t step = 0;
  std::chrono::nanoseconds first_ready_to_done{};  ///< From the first bucket's start to the end of wait().
  std::chrono::nanoseconds waited{};               ///< Inside wait(): communication that was not hidden by backward.
  std::size_t bytes = 0;                           ///< Gradient bytes reduced.
  int buckets = 0;
};

/// Averages gradients over all ranks while backward runs. Use: construct once; per step run backward, calling mark_ready(i)
/// when gradient i is complete; wait(); then step the optimizer.
class LOCKSTEP_API Reducer {
 public:
  /// Collective: checks that all ranks have the same names, shapes and types (Error(mismatch) names the first difference and the rank), then
  /// broadcasts rank 0's values. `communicator` must outlive the reducer.
  Reducer(Communicator& communicator, std::span<const Parameter> parameters, const ReducerOptions& options = {});
  ~Reducer();
  Reducer(Reducer&&) noexcept;

  /// Where gradient i lives. With views: in its bucket, valid for the reducer's life. Write the gradient there, then mark_ready(i).
  void* gradient(std::size_t parameter) const;

  /// Gradient i is complete. Callable from any thread, once per parameter and step. The last gradient of a bucket starts its all_reduce, which then
  /// progresses on the library's thread. Buckets start in plan order on all ranks whatever the order of calls. Throws on a bad index, or on a second call in one step.
  void mark_ready(std::size_t parameter);

  /// Ends the step: returns when all gradients are averaged. Throws when a parameter was never marked (names it), or when a collective failed.
  void wait();

  const BucketPlan& plan() const noexcept;
  StepStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Deals the indices 0..dataset_size-1 to ranks as PyTorch's DistributedSampler does: a permutation seeded with seed + epoch
/// (equal on all ranks, our own generator), padded by repeating from its start (or cut, with drop_last) to a multiple of the world, dealt round robin.
class LOCKSTEP_API DistributedSampler {
 public:
  DistributedSampler(std::size_t dataset_size, int world_size, int rank, bool shuffle = true, std::uint64_t seed = 0, bool drop_last = false);
  void set_epoch(std::uint64_t epoch) noexcept { epoch_ = epoch; }
  /// Samples per rank and epoch.
  std::size_t size() const noexcept;
  /// This rank's indices for the epoch.
  std::vector<std::size_t> indices() const;

 private:
  std::size_t dataset_size_;
  int world_size_, rank_;
  bool shuffle_, drop_last_;
  std::uint64_t seed_, epoch_ = 0;
};

}  // namespace lockstep
