// DistributedSampler: which samples are this rank's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/export.hpp"

namespace lockstep {

/// Deals the indices 0..dataset_size-1 to ranks as PyTorch's DistributedSampler does: a permutation seeded
/// with seed + epoch (equal on all ranks), padded by repeating from its start (or cut, with drop_last) to a
/// multiple of the world, dealt round robin: rank r gets the positions r, r + world, r + 2 world, ... So step
/// s of batch B / world on each rank covers the same B samples for any world.
///
/// The permutation is lockstep's own and the same everywhere: Fisher-Yates from the last position down, whose
/// j in [0, i] is drawn from SplitMix64 (Steele, Lea, Flood 2014) modulo i + 1, draws below
/// 2^64 modulo i + 1 being rejected. set_epoch() while no other thread is in a call; the rest from any
/// thread.
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
