// What the tests of communication hooks begin with: small buckets, one step, the averages.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "lockstep/ddp.hpp"
#include "tests/ddp/model.hpp"

namespace lockstep {

inline constexpr std::size_t kSteps = 4;

inline ReducerOptions small_buckets(std::shared_ptr<CommunicationHook> hook) {
  return {.bucket_bytes = 8'000, .first_bucket_bytes = 2'000, .hook = std::move(hook)};
}

/// One step of `rank`; tensors are marked from the first to the last, so that the buckets fill against plan
/// order.
inline void run_step(Reducer& reducer, const Model& model, int rank, std::size_t step) {
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    write_gradient(reducer, model, i, rank, step);
    reducer.mark_ready(i);
  }
  reducer.wait();
}

inline void expect_averages(const Reducer& reducer, const Model& model, int ranks, std::size_t step) {
  for (std::size_t i = 0; i < model.tensors(); ++i) {
    const auto* gradient = static_cast<const float*>(reducer.gradient(i));
    for (std::size_t e = 0; e < model.elements(i); ++e) {
      ASSERT_NEAR(gradient[e], summed_gradient(ranks, step, i, e) / static_cast<float>(ranks), 1e-4)
          << "tensor " << i << ", element " << e;
    }
  }
}

}  // namespace lockstep
