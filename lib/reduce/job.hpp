// Reductions and conversions as data, for whoever executes them later: the streams of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/status.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal {

/// What one source is multiplied by, in its own type.
struct ScaleFactor {
  double value = 1;              ///< Of integers a whole number.
  const void* device = nullptr;  ///< If set, one element of the reduction's type that kernels can read.
};

/// As `Reduction` in lib/reduce/reduce.hpp, stream-ordered: every destination gets finish(s[0] op s[1] op
/// ...), combined from left to right, small floats accumulated in f32 and rounded once; a destination may be
/// one of the sources. One source is copied (scaled, divided).
struct ReduceJob {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;  ///< Not user.
  std::size_t count = 0;        ///< Elements.
  std::span<const void* const> sources;
  std::span<void* const> destinations;
  /// For avg: the value is divided by this before it is stored, as by Reduction's; 0 or 1: avg is sum.
  double divisor = 0;
  /// Empty, or one for each source, for real floats and integers: the source is multiplied, rounded to its
  /// type, and then reduced, with the same bits as if it had been scaled beforehand.
  std::span<const ScaleFactor> factors = {};
  /// Not null: a word that the device can read; while it is 0 the reduction does nothing.
  const std::uint32_t* permit = nullptr;
};

/// f32 to (narrow) or from (widen) a smaller type, each element times `factor`: as lib/reduce/convert.hpp.
struct ConvertJob {
  DataType from = DataType::f32, to = DataType::f32;  ///< One of them is f32, the other a narrow type.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  float factor = 1;
};

/// Blocks of `block` elements with one f32 scale each: as quantise() in lib/reduce/convert.hpp.
struct QuantiseJob {
  DataType type = DataType::f8e4m3;
  const float* input = nullptr;
  std::size_t count = 0, block = 0;
  float* scales = nullptr;
  void* codes = nullptr;
};
struct DequantiseJob {
  DataType type = DataType::f8e4m3;
  const float* scales = nullptr;
  const void* codes = nullptr;
  std::size_t count = 0, block = 0;
  float factor = 1;
  float* output = nullptr;
  bool add = false;  ///< Added to what `output` holds, else in its place.
};

/// Ok, or what is wrong: checked before anything is enqueued, since a kernel has nobody to tell.
Status check_job(const ReduceJob& job);
Status check_job(const ConvertJob& job);
Status check_job(const QuantiseJob& job);
Status check_job(const DequantiseJob& job);

}  // namespace lockstep::internal
