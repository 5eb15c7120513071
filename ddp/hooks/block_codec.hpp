// BlockCodec: f32 as one byte an element and one f32 scale a block. Encoded: the scales, then the codes,
// padded to whole scales.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include "lib/reduce/convert.hpp"

namespace lockstep::internal {

/// Where encoded values lie; and in which chunks of a bucket ranks exchange them: two ranks whole buckets,
/// more of them one chunk for each, of whole blocks, the last of which may have fewer elements, or none.
struct BlockLayout {
  static constexpr std::size_t round_up(std::size_t value, std::size_t unit) {
    return (value + unit - 1) / unit * unit;
  }
  std::size_t scale_bytes(std::size_t count) const noexcept {
    return (count + block - 1) / block * sizeof(float);
  }
  std::size_t encoded_bytes(std::size_t count) const noexcept {
    return scale_bytes(count) + round_up(count, sizeof(float));
  }
  static std::size_t chunks(int ranks) noexcept { return ranks == 2 ? 1 : static_cast<std::size_t>(ranks); }
  std::size_t chunk_elements(std::size_t count, int ranks) const noexcept {
    return ranks == 2 ? count : round_up((count + chunks(ranks) - 1) / chunks(ranks), block);
  }
  /// Elements of chunk `index` of a bucket of `count`.
  static std::size_t chunk_count(std::size_t chunk, std::size_t count, std::size_t index) noexcept {
    return std::min(chunk, count - std::min(count, index * chunk));
  }

  std::size_t block;  ///< Elements that share a scale: a multiple of 4.
};

class BlockCodec {
 public:
  /// i8, f8e4m3 or f8e5m2; `block` is a multiple of 4.
  BlockCodec(DataType type, std::size_t block) : type_(type), layout_{block} {}

  const BlockLayout& layout() const noexcept { return layout_; }
  std::size_t encoded_bytes(std::size_t count) const noexcept { return layout_.encoded_bytes(count); }

  /// `to` has encoded_bytes(input.size()) bytes and the alignment of f32.
  void encode(std::span<const float> input, std::byte* to) const {
    quantise(type_, input.data(), input.size(), layout_.block, reinterpret_cast<float*>(to),
             to + scale_bytes(input.size()));
  }

  /// The encoded values times `factor` replace `output` or are added to it.
  void decode(const std::byte* from, float factor, std::span<float> output, Into into) const {
    dequantise(type_, reinterpret_cast<const float*>(from), from + scale_bytes(output.size()), output.size(),
               layout_.block, factor, output.data(), into);
  }

  /// Sets those blocks of `residual` to zero whose scale is not finite: a NaN that was sent is not kept as
  /// well.
  void drop_lost(const std::byte* encoded, std::span<float> residual) const {
    const auto* scales = reinterpret_cast<const float*>(encoded);
    for (std::size_t first = 0, b = 0; first < residual.size(); first += layout_.block, ++b) {
      if (std::isfinite(scales[b])) continue;
      const std::span<float> rest = residual.subspan(first);
      std::fill_n(rest.begin(), std::min(layout_.block, rest.size()), 0.0f);
    }
  }

 private:
  std::size_t scale_bytes(std::size_t count) const noexcept { return layout_.scale_bytes(count); }

  DataType type_;
  BlockLayout layout_;
};

}  // namespace lockstep::internal
