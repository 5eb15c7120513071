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

/// One trainable tensor. `value` (the parameter itself) is contiguous and belongs to the caller.
struct Parameter {
  std::string name;
  DataType type = DataType::f32;  ///< A float or complex type.
  std::vector<std::size_t> shape;
  void* value = nullptr;
  /// Where the caller keeps the gradient, contiguous. Read only without ReducerOptions::gradients_as_views;
  /// with views the reducer owns the gradients and tells where they are: Reducer::gradient().
  void* gradient = nullptr;
};

struct ReducerOptions {
  std::size_t bucket_bytes = 25u << 20;       ///< Cap of a bucket.
  std::size_t first_bucket_bytes = 1u << 20;  ///< Cap of the first: communication starts early.
  bool gradients_as_views = true;  ///< Gradients live in the buckets: no copy. May differ between ranks.
  bool average = true;             ///< Divide by the world size; false sums.
};

/// Which gradients travel together. Pure function of names' order, shapes, types and caps; equal on all
/// ranks.
struct BucketPlan {
  struct Bucket {
    DataType type = DataType::f32;
    std::vector<std::size_t> parameters;  ///< Indices, in the order in which they lie in the bucket.
    std::vector<std::size_t> offsets;     ///< In elements, of each of them; on multiples of kAlignment bytes.
    std::size_t count = 0;                ///< Elements in all, alignment gaps included.
  };
  static constexpr std::size_t kAlignment = 64;  ///< A cache line, and the widest vector register.
  std::vector<Bucket> buckets;                   ///< In the order in which they are expected to become ready.
};

/// Reverse registration order (backward produces the last layer first), one type per bucket. A bucket never
/// exceeds its cap, but for a parameter larger than the cap, which travels alone. Throws
/// Error(invalid_argument) when a size overflows.
LOCKSTEP_API BucketPlan plan_buckets(std::span<const Parameter> parameters, const ReducerOptions& options);

/// Times and bytes of the last step that wait() ended with success.
struct StepStatistics {
  std::uint64_t step = 0;                          ///< Steps ended so far; 0 before the first.
  std::chrono::nanoseconds first_ready_to_done{};  ///< From the first bucket's start to the end of wait().
  std::chrono::nanoseconds waited{};  ///< Inside wait(): what backward did not hide, and late peers.
  std::size_t bytes = 0;              ///< Gradient bytes reduced.
  int buckets = 0;
};

/// Averages gradients over all ranks while backward runs. Construct once; then per step: run backward,
/// calling mark_ready(i) when gradient i is complete; wait(); step the optimizer. docs/ddp.md is the guide.
///
/// Thread safety: gradient(), mark_ready() and plan() from any thread at any time; wait(), statistics(),
/// moves and destruction from one thread at a time. An invalid_argument from mark_ready() or wait() changes
/// nothing: the step can go on.
class LOCKSTEP_API Reducer {
 public:
  /// Collective. Checks that all ranks have the same names, shapes, types and options: Error(mismatch), on
  /// every rank, names the first difference and the rank; an unusable parameter (null pointer, integer type)
  /// of one rank is an error on all that names it. Then every rank's values become rank 0's. `communicator`
  /// and the values must outlive the reducer.
  Reducer(Communicator& communicator, std::span<const Parameter> parameters,
          const ReducerOptions& options = {});
  /// Local. In the midst of a step it aborts the communicator: the peers wait for this rank's gradients.
  ~Reducer();
  Reducer(Reducer&&) noexcept;

  /// Where gradient i lives. With views: in its bucket, aligned to BucketPlan::kAlignment, zero at first,
  /// valid for the reducer's life. Without: Parameter::gradient. Throws on a bad index.
  void* gradient(std::size_t parameter) const;

  /// Gradient i is complete; it must not be touched until wait() returned. Callable from any thread, once per
  /// parameter and step. The last gradient of a bucket starts its all_reduce, which then progresses on the
  /// library's thread. Buckets start in plan order on all ranks whatever the order of calls. Throws on a bad
  /// index, or on a second call in one step. A collective that fails here is reported by wait().
  void mark_ready(std::size_t parameter);

  /// Ends the step: returns when all gradients are averaged. A parameter that was never marked is
  /// Error(invalid_argument) that names it; mark it and wait again. A failed collective throws its Error
  /// after every bucket came to rest; the gradients are then undefined.
  void wait();

  const BucketPlan& plan() const noexcept;
  StepStatistics statistics() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Deals the indices 0..dataset_size-1 to ranks as PyTorch's DistributedSampler does: a permutation seeded
/// with seed + epoch (equal on all ranks), padded by repeating from its start (or cut, with drop_last) to a
/// multiple of the world, dealt round robin: rank r gets the positions r, r + world, r + 2 world, ... So step
/// s of batch B / world on each rank covers the same B samples for any world.
///
/// The permutation is lockstep's own and the same everywhere: Fisher-Yates from the last position down, whose
/// j in [0, i] is drawn from SplitMix64 (Steele, Lea, Flood 2014) modulo i + 1, draws below
/// 2^64 modulo i + 1 being rejected.
class LOCKSTEP_API DistributedSampler {
 public:
  /// Throws Error(invalid_argument) unless 0 <= rank < world_size.
  DistributedSampler(std::size_t dataset_size, int world_size, int rank, bool shuffle = true,
                     std::uint64_t seed = 0, bool drop_last = false);
  /// Call before each epoch, with the same number on all ranks; otherwise every epoch has the order of epoch
  /// 0.
  void set_epoch(std::uint64_t epoch) noexcept { epoch_ = epoch; }
  /// Samples per rank and epoch.
  std::size_t size() const noexcept;
  /// This rank's indices for the epoch.
  std::vector<std::size_t> indices() const;

 private:
  std::size_t dataset_size_;
  int world_size_;
  int rank_;
  bool shuffle_;
  bool drop_last_;
  std::uint64_t seed_, epoch_ = 0;
};

}  // namespace lockstep
