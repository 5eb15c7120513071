// Blocked matrix product: a panel of b, kDepth x kWidth, is packed so that it stays in the first-level cache,
// and is then multiplied with tiles of kHeight rows of a, whose results stay in registers. The innermost loop
// runs over a panel's row; compilers vectorise it.
#include "examples/matrix/matrix.hpp"

#include <algorithm>
#include <array>

namespace examples {
namespace {

constexpr std::size_t kDepth = 256;  // Panel of 8 KiB: a quarter of a usual first-level cache.
// kHeight * kWidth sums fill half of the 16 vector registers of SSE2 and leave room for operands.
constexpr std::size_t kWidth = 8;
constexpr std::size_t kHeight = 4;

using Panel = std::array<float, kDepth * kWidth>;

/// Copies depth x width of b from (k0, j0); missing columns are zero.
void pack(const MatrixView& b, std::size_t k0, std::size_t depth, std::size_t j0, std::size_t width,
          Panel& panel) {
  for (std::size_t k = 0; k < depth; ++k) {
    float* row = &panel[k * kWidth];
    for (std::size_t j = 0; j < width; ++j) row[j] = b.at(k0 + k, j0 + j);
    std::fill(row + width, row + kWidth, 0.0f);
  }
}

/// Adds Height rows of a, from (i0, k0), times the panel to c at (i0, j0).
template <std::size_t Height>
void multiply_tile(const MatrixView& a, std::size_t i0, std::size_t k0, std::size_t depth, const Panel& panel,
                   float* c, std::size_t stride, std::size_t width) {
  float sums[Height][kWidth] = {};
  for (std::size_t k = 0; k < depth; ++k) {
    const float* row = &panel[k * kWidth];
    for (std::size_t i = 0; i < Height; ++i) {
      const float factor = a.at(i0 + i, k0 + k);
      for (std::size_t j = 0; j < kWidth; ++j) sums[i][j] += factor * row[j];
    }
  }
  for (std::size_t i = 0; i < Height; ++i) {
    for (std::size_t j = 0; j < width; ++j) c[i * stride + j] += sums[i][j];
  }
}

}  // namespace

void multiply_add(const MatrixView& a, const MatrixView& b, float* c) {
  Panel panel;
  for (std::size_t k0 = 0; k0 < b.rows; k0 += kDepth) {
    const std::size_t depth = std::min(kDepth, b.rows - k0);
    for (std::size_t j0 = 0; j0 < b.columns; j0 += kWidth) {
      const std::size_t width = std::min(kWidth, b.columns - j0);
      pack(b, k0, depth, j0, width, panel);
      float* column = c + j0;
      std::size_t i = 0;
      for (; i + kHeight <= a.rows; i += kHeight) {
        multiply_tile<kHeight>(a, i, k0, depth, panel, column + i * b.columns, b.columns, width);
      }
      for (; i < a.rows; ++i)
        multiply_tile<1>(a, i, k0, depth, panel, column + i * b.columns, b.columns, width);
    }
  }
}

}  // namespace examples
