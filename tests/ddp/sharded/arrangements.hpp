// What the tests of ShardedOptimizer begin with: its arrangements, small buckets, one step.
#pragma once

#include "lockstep/ddp/sharded_optimizer.hpp"
#include "tests/ddp/model.hpp"

namespace lockstep::testing {

struct Arrangement {
  ZeroStage stage;
  bool values_as_views;
};
inline constexpr Arrangement kArrangements[] = {{ZeroStage::optimizer, false},
                                                {ZeroStage::optimizer, true},
                                                {ZeroStage::gradients, false},
                                                {ZeroStage::gradients, true}};

inline float* floats(void* data) { return static_cast<float*>(data); }

inline ShardedOptions small_buckets(const Arrangement& arrangement) {
  return {.bucket_bytes = 8'192,
          .first_bucket_bytes = 2'000,
          .stage = arrangement.stage,
          .values_as_views = arrangement.values_as_views};
}

/// One whole step of `rank`, whose gradients are local_gradient()'s small whole numbers.
inline void run_step(ShardedOptimizer& sharded, const Model& model, int rank, std::size_t step) {
  for (std::size_t i = 0; i < model.tensors(); ++i) sharded.wait_parameters(i);
  for (std::size_t i = model.tensors(); i-- > 0;) {
    auto* gradient = static_cast<float*>(sharded.gradient(i));
    for (std::size_t e = 0; e < model.elements(i); ++e) gradient[e] = local_gradient(rank, step, i, e);
    sharded.mark_ready(i);
  }
  sharded.wait();
}

}  // namespace lockstep::testing
