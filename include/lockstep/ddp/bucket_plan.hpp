// BucketPlan: which gradients travel together.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/reducer_options.hpp"
#include "lockstep/export.hpp"
#include "lockstep/types.hpp"

namespace lockstep {

/// A run of elements of one gradient, and where it lies in its bucket.
struct GradientPart {
  std::size_t parameter = 0;  ///< Index in the list of parameters.
  /// In elements from the bucket's start; a multiple of BucketPlan::kAlignment bytes.
  std::size_t offset = 0;
  std::size_t first = 0;  ///< Of the parameter's elements, the first in this bucket.
  std::size_t count = 0;  ///< Elements; those of the whole parameter unless it is split.
  bool operator==(const GradientPart&) const = default;
};

/// Which gradients travel together. Equal on all ranks.
struct BucketPlan {
  struct Bucket {
    DataType type = DataType::f32;
    std::vector<GradientPart> parts;  ///< In the order in which they lie in the bucket.
    std::size_t count = 0;            ///< Elements in all, alignment gaps included.
    bool operator==(const Bucket&) const = default;
  };
  static constexpr std::size_t kAlignment = 64;  ///< A cache line, and the widest vector register.
  std::vector<Bucket> buckets;                   ///< In the order in which they are expected to become ready.
  bool operator==(const BucketPlan&) const = default;
};

/// Reverse registration order (backward produces the last layer first), one type per bucket. A bucket that
/// parameters share never exceeds its cap. A parameter larger than the cap travels in several buckets of its
/// own, of equal size in whole pages, at least one, and within bucket_bytes (of the first bucket too: nothing
/// waits for others there), or alone in one (ReducerOptions::split_large). Pure. Throws
/// Error(invalid_argument) when a size overflows.
LOCKSTEP_API BucketPlan plan_buckets(std::span<const Parameter> parameters, const ReducerOptions& options);

}  // namespace lockstep
