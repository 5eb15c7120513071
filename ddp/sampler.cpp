// DistributedSampler: which samples are this rank's.
#include <numeric>
#include <string>
#include <utility>

#include "lockstep/ddp.hpp"

namespace lockstep {
namespace {

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, n), n > 0. The first 2^64 mod n values would make the small remainders more likely: drawn
  /// again.
  std::uint64_t below(std::uint64_t n) {
    const std::uint64_t unfair = (0 - n) % n;
    std::uint64_t value = next();
    while (value < unfair) value = next();
    return value % n;
  }

 private:
  std::uint64_t state_;
};

std::vector<std::size_t> permutation(std::size_t n, bool shuffle, std::uint64_t seed) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!shuffle) return order;
  SplitMix64 generator(seed);
  for (std::size_t i = n; i-- > 1;) std::swap(order[i], order[generator.below(i + 1)]);
  return order;
}

}  // namespace

DistributedSampler::DistributedSampler(std::size_t dataset_size, int world_size, int rank, bool shuffle,
                                       std::uint64_t seed, bool drop_last)
    : dataset_size_(dataset_size),
      world_size_(world_size),
      rank_(rank),
      shuffle_(shuffle),
      drop_last_(drop_last),
      seed_(seed) {
  if (world_size >= 1 && rank >= 0 && rank < world_size) return;
  throw Error(ErrorCode::invalid_argument, "DistributedSampler: rank " + std::to_string(rank) +
                                               " of a world of " + std::to_string(world_size) +
                                               " does not exist; pass rank() and size()");
}

std::size_t DistributedSampler::size() const noexcept {
  const auto world = static_cast<std::size_t>(world_size_);
  const bool round_up = !drop_last_ && dataset_size_ % world != 0;
  return dataset_size_ / world + (round_up ? 1 : 0);
}

std::vector<std::size_t> DistributedSampler::indices() const {
  const std::vector<std::size_t> order = permutation(dataset_size_, shuffle_, seed_ + epoch_);
  std::vector<std::size_t> mine(size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const std::size_t position = static_cast<std::size_t>(rank_) + i * static_cast<std::size_t>(world_size_);
    mine[i] = order[position % dataset_size_];  // Past the end: padding, from the start, as often as needed.
  }
  return mine;
}

}  // namespace lockstep
