// Fitting: the costs by which the predictions come nearest to what was measured.
#pragma once

#include <span>

#include "collectives/select/predict.hpp"

namespace lockstep::internal {

/// One measured call.
struct Sample {
  const Algorithm* algorithm;
  CostGround ground;
  std::uint64_t bytes;  ///< As its count says.
  double seconds;
};

/// What `cost` makes of a sample's call.
double predicted(const Sample& sample, const LinkCost& cost);

/// The costs, none negative, with the least relative squares; a sample that is far off all the same counts
/// less. Samples are of one link class and load. What they say nothing about stays as in `prior`, whose
/// regimes' sizes are kept; so does the cost of a step where all samples are of two ranks, between whom a
/// message's ends and its way always come together.
LinkCost fit_link_cost(const LinkCost& prior, std::span<const Sample> samples);

}  // namespace lockstep::internal
