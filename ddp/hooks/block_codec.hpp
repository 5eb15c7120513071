// BlockCodec: f32 as one byte an element and one f32 scale a block. Encoded: the scales, then the codes,
// padded to whole scales.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "lib/reduce/convert.hpp"

namespace lockstep::internal {

class BlockCodec {
 public:
  /// i8, f8e4m3 or f8e5m2; `block` is a multiple of 4.
  BlockCodec(DataType type, std::size_t block) : type_(type), block_(block) {}

  std::size_t block() const noexcept { return block_; }
  std::size_t encoded_bytes(std::size_t count) const noexcept {
    return scale_bytes(count) + (count + sizeof(float) - 1) / sizeof(float) * sizeof(float);
  }

  /// `to` has encoded_bytes(input.size()) bytes and the alignment of f32.
  void encode(std::span<const float> input, std::byte* to) const {
    quantise(type_, input.data(), input.size(), block_, reinterpret_cast<float*>(to),
             to + scale_bytes(input.size()));
  }

  /// The encoded values times `factor` replace `output` or are added to it.
  void decode(const std::byte* from, float factor, std::span<float> output, Into into) const {
    dequantise(type_, reinterpret_cast<const float*>(from), from + scale_bytes(output.size()), output.size(),
               block_, factor, output.data(), into);
  }

  /// Sets those blocks of `residual` to zero whose scale is not finite: a NaN that was sent is not kept as
  /// well.
  void drop_lost(const std::byte* encoded, std::span<float> residual) const {
    const auto* scales = reinterpret_cast<const float*>(encoded);
    for (std::size_t first = 0, b = 0; first < residual.size(); first += block_, ++b) {
      if (std::isfinite(scales[b])) continue;
      const std::span<float> rest = residual.subspan(first);
      std::fill_n(rest.begin(), std::min(block_, rest.size()), 0.0f);
    }
  }

 private:
  std::size_t scale_bytes(std::size_t count) const noexcept {
    return (count + block_ - 1) / block_ * sizeof(float);
  }

  DataType type_;
  std::size_t block_;
};

}  // namespace lockstep::internal
