// Prediction: what an algorithm will take for a call, by a cost model.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/select/cost_model.hpp"

namespace lockstep::internal {

/// Where calls run, as far as their cost is concerned; equal on all ranks.
struct CostGround {
  int world = 1;
  Load load = Load::spare;
  std::uint64_t segment_bytes = 0;  ///< LOCKSTEP_SEGMENT or what the engine takes for it.
  std::vector<int> hosts{};         ///< As Shape::hosts.
  Network network{};                ///< Between them; not known, and between none: as the class `tcp`.
  bool streams = true;              ///< As Shape::streams.
  bool operator==(const CostGround&) const = default;
};

/// The shape of a call of `bytes` (as its count says: whole buffer, or block) that rank 0 is the root of.
Shape typical_shape(Collective collective, const CostGround& ground, std::uint64_t bytes);
/// Whether an algorithm takes such calls and may be chosen for them.
bool supports(const Algorithm& algorithm, const CostGround& ground, std::uint64_t bytes);

/// Seconds by the programs alone: what the walk over the steps of all ranks says (cost.hpp). Worlds of more
/// than kWalkedRanks and calls of more than kWalkedBytes are extrapolated from smaller ones.
inline constexpr int kWalkedRanks = 16;
inline constexpr std::uint64_t kWalkedBytes = 4 << 20;
/// `memory`: where ranks share hosts, what staged shared memory costs there; links within a host are taken to
/// be like it.
double predict_uncorrected(const LinkCost& link, const CostGround& ground, const Algorithm& algorithm,
                           std::uint64_t bytes, const LinkCost* memory = nullptr);

/// Seconds, with the factor that the model has for this algorithm.
double predict_call(const CostModel& model, const CostGround& ground, const Algorithm& algorithm,
                    std::uint64_t bytes);

/// floor(log2(bytes)); 0 for none.
int log2_class(std::uint64_t bytes);
/// Bytes of the larger side of a call.
std::uint64_t larger_side(Collective collective, std::uint64_t bytes, int world);

}  // namespace lockstep::internal
