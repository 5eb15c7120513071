// DistributedSampler: coverage, disjointness, padding, and that the dealing does not depend on the world's
// size.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "lockstep/ddp.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::size_t>;

/// What all ranks get, in the order in which it was dealt: position r + k * world is the k-th of rank r.
Indices dealt(std::size_t dataset, int world, bool drop_last, std::uint64_t seed = 1,
              std::uint64_t epoch = 0) {
  Indices all;
  for (int r = 0; r < world; ++r) {
    DistributedSampler sampler(dataset, world, r, true, seed, drop_last);
    sampler.set_epoch(epoch);
    const Indices mine = sampler.indices();
    EXPECT_EQ(mine.size(), sampler.size());
    all.resize(mine.size() * static_cast<std::size_t>(world));
    for (std::size_t k = 0; k < mine.size(); ++k) {
      all[static_cast<std::size_t>(r) + k * static_cast<std::size_t>(world)] = mine[k];
    }
  }
  return all;
}

Indices sorted(Indices indices) {
  std::sort(indices.begin(), indices.end());
  return indices;
}

Indices iota(std::size_t n) {
  Indices indices(n);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  return indices;
}

TEST(DistributedSampler, PadsByRepeatingFromTheStart) {
  for (std::size_t dataset = 1; dataset <= 40; ++dataset) {
    for (int world = 1; world <= 9; ++world) {
      const Indices all = dealt(dataset, world, false);
      const std::size_t w = static_cast<std::size_t>(world);
      ASSERT_EQ(all.size(), (dataset + w - 1) / w * w);
      EXPECT_EQ(sorted(Indices(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(dataset))),
                iota(dataset));
      for (std::size_t i = dataset; i < all.size(); ++i) EXPECT_EQ(all[i], all[i - dataset]);
    }
  }
}

TEST(DistributedSampler, RepeatsADatasetSmallerThanTheWorldAsOftenAsNeeded) {
  const Indices all = dealt(3, 8, false);
  ASSERT_EQ(all.size(), 8u);
  for (std::size_t i = 3; i < 8; ++i) EXPECT_EQ(all[i], all[i % 3]);
}

TEST(DistributedSampler, DropsTheTail) {
  for (std::size_t dataset = 0; dataset <= 40; ++dataset) {
    for (int world = 1; world <= 9; ++world) {
      const Indices all = dealt(dataset, world, true);
      const std::size_t w = static_cast<std::size_t>(world);
      ASSERT_EQ(all.size(), dataset / w * w);
      const Indices distinct = sorted(all);
      EXPECT_EQ(std::adjacent_find(distinct.begin(), distinct.end()), distinct.end());
    }
  }
}

TEST(DistributedSampler, DealsTheSamePermutationToAnyWorld) {
  const Indices one = dealt(100, 1, true);
  for (const int world : {2, 4, 5}) EXPECT_EQ(dealt(100, world, true), one);
}

TEST(DistributedSampler, ShufflesAnewEachEpochAndWithEachSeed) {
  const Indices first = dealt(100, 2, false, 5, 0);
  EXPECT_EQ(dealt(100, 2, false, 5, 0), first);
  EXPECT_NE(dealt(100, 2, false, 5, 1), first);
  EXPECT_NE(dealt(100, 2, false, 9, 0), first);
  EXPECT_EQ(dealt(100, 2, false, 4, 1), first) << "the permutation is seeded with seed + epoch";
}

TEST(DistributedSampler, KeepsTheOrderWithoutShuffle) {
  EXPECT_EQ(DistributedSampler(7, 2, 0, false).indices(), (Indices{0, 2, 4, 6}));
  EXPECT_EQ(DistributedSampler(7, 2, 1, false).indices(), (Indices{1, 3, 5, 0}));
  EXPECT_EQ(DistributedSampler(7, 2, 1, false, 0, true).indices(), (Indices{1, 3, 5}));
}

/// The generator is part of the contract: a run repeated years later sees the same batches.
TEST(DistributedSampler, KeepsItsPermutation) {
  EXPECT_EQ(DistributedSampler(10, 1, 0, true, 42).indices(), (Indices{0, 9, 5, 8, 6, 4, 7, 2, 1, 3}));
}

TEST(DistributedSampler, ShufflesEvenly) {
  std::map<Indices, int> counts;
  constexpr int kRounds = 24'000;
  for (int seed = 0; seed < kRounds; ++seed) {
    ++counts[DistributedSampler(4, 1, 0, true, static_cast<std::uint64_t>(seed)).indices()];
  }
  ASSERT_EQ(counts.size(), 24u);
  // 1000 expected of each; the standard deviation is 31.
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 200);
}

TEST(DistributedSampler, AcceptsAnEmptyDataset) {
  EXPECT_TRUE(DistributedSampler(0, 3, 1).indices().empty());
}

TEST(DistributedSampler, RefusesARankOutsideTheWorld) {
  for (const auto& [world, rank] : {std::pair{4, 4}, {4, -1}, {0, 0}}) {
    try {
      const DistributedSampler sampler(10, world, rank);
      FAIL() << "accepted rank " << rank << " of " << world;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("does not exist"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace lockstep
