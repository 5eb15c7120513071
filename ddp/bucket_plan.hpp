// Sizes of parameters, and plans that are not made in registration order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/status.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// Elements of a parameter: the product of its shape (1 for a scalar, 0 when a dimension is 0).
/// invalid_argument when elements or bytes do not fit half the address space.
Result<std::size_t> element_count(const Parameter& parameter);

/// How every message writes a parameter: `"fc1.weight" f32 [64, 256]`.
std::string describe(const Parameter& parameter);

/// Bytes of a bucket's gradients, without gaps.
std::size_t gradient_bytes(const BucketPlan::Bucket& bucket);

/// Buckets start on pages: ranks that reduce neighbouring buckets share no page. A split gradient is cut into
/// whole pages, so that it lies in one piece.
inline constexpr std::size_t kBucketAlignment = 4096;
constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
}

/// The first bucket of those that the next forward needs first: all but the first quarter of the bytes, and
/// the last bucket in any case. Pure.
std::size_t first_urgent(const BucketPlan& plan);

/// Differs where plans do.
std::uint64_t hash_of(const BucketPlan& plan);

/// A part of a parameter's gradient and the bucket that it lies in.
struct PartPlace {
  std::size_t bucket = 0;
  GradientPart part;
};
/// Of each of `parameters` parameters, in the order of the buckets; none of those that are not in the plan.
std::vector<std::vector<PartPlace>> places_of(const BucketPlan& plan, std::size_t parameters);

/// plan_buckets for gradients that become ready in `order`, which names every parameter once.
BucketPlan plan_in_order(std::span<const Parameter> parameters, const ReducerOptions& options,
                         std::span<const std::size_t> order);

/// `plan` of parameters that are numbered from `first` on.
BucketPlan numbered_from(std::size_t first, BucketPlan plan);

/// `plan` without the parameters i for which frozen[i]: its buckets lose them at both ends, keep the place of
/// those in between, and are left out when nothing remains. No gradient moves.
BucketPlan without_frozen(const BucketPlan& plan, const std::vector<bool>& frozen);

}  // namespace lockstep::internal
