#include "ddp/hooks/low_rank.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::internal {
namespace {

/// Independent sums that compilers keep in vector registers.
constexpr std::size_t kLanes = 16;

float dot(const float* a, const float* b, std::size_t n) {
  float sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  }
  for (std::size_t l = 0; i < n; ++i, ++l) sums[l] += a[i] * b[i];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

/// y += factor x.
void add_scaled(float factor, const float* x, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

/// So that its largest element is 1 or -1; not a column of zeros.
void scale_to_one(float* column, std::size_t rows) {
  float largest = 0;
  for (std::size_t i = 0; i < rows; ++i) largest = std::max(largest, std::abs(column[i]));
  if (largest == 0) return;
  for (std::size_t i = 0; i < rows; ++i) column[i] /= largest;
}

/// Takes the parts along the orthonormal columns before column `k` out of it.
void project_out(float* columns, std::size_t rows, std::size_t k) {
  float* column = columns + k * rows;
  for (std::size_t j = 0; j < k; ++j) {
    const float* before = columns + j * rows;
    add_scaled(-dot(before, column, rows), before, rows, column);
  }
}

}  // namespace

void multiply(const float* m, MatrixShape shape, std::size_t rank, const float* q, float* p) {
  for (std::size_t i = 0; i < shape.rows; ++i) {
    for (std::size_t k = 0; k < rank; ++k) {
      p[k * shape.rows + i] = dot(m + i * shape.columns, q + k * shape.columns, shape.columns);
    }
  }
}

void multiply_transposed(const float* m, MatrixShape shape, std::size_t rank, const float* p, float* q) {
  std::fill_n(q, rank * shape.columns, 0.0f);
  for (std::size_t i = 0; i < shape.rows; ++i) {
    for (std::size_t k = 0; k < rank; ++k) {
      add_scaled(p[k * shape.rows + i], m + i * shape.columns, shape.columns, q + k * shape.columns);
    }
  }
}

void expand(const float* p, const float* q, MatrixShape shape, std::size_t rank, float factor, float* m) {
  for (std::size_t i = 0; i < shape.rows; ++i) {
    float* row = m + i * shape.columns;
    std::fill_n(row, shape.columns, 0.0f);
    for (std::size_t k = 0; k < rank; ++k) {
      add_scaled(factor * p[k * shape.rows + i], q + k * shape.columns, shape.columns, row);
    }
  }
}

void orthonormalise(float* columns, std::size_t rows, std::size_t rank) {
  // What is left of a column that lies in the span of the others is rounding, and would be blown up to
  // length 1.
  constexpr float kNegligible = 1e-5f;
  for (std::size_t k = 0; k < rank; ++k) {
    float* column = columns + k * rows;
    scale_to_one(column, rows);  // Squares of small gradients would underflow.
    const float before = std::sqrt(dot(column, column, rows));
    project_out(columns, rows, k);
    project_out(columns, rows, k);
    const float length = std::sqrt(dot(column, column, rows));
    const bool depends = length <= kNegligible * before;
    for (std::size_t i = 0; i < rows; ++i) column[i] = depends ? 0.0f : column[i] / length;
  }
}

void scale_columns(float* columns, std::size_t rows, std::size_t rank) {
  for (std::size_t k = 0; k < rank; ++k) scale_to_one(columns + k * rows, rows);
}

void refill_empty(float* columns, std::size_t rows, std::size_t rank, std::uint64_t seed) {
  for (std::size_t k = 0; k < rank; ++k) {
    float* column = columns + k * rows;
    const auto bad = [](float x) { return !std::isfinite(x); };
    const auto filled = [](float x) { return x != 0.0f; };
    if (std::any_of(column, column + rows, filled) && std::none_of(column, column + rows, bad)) continue;
    // A multiplicative congruential generator (Lehmer; the multiplier is Steele and Vigna's, 2021).
    std::uint64_t state = 2 * (seed * rank + k) + 1;
    for (int skip = 0; skip < 4; ++skip) state *= 0xd1342543de82ef95u;
    for (std::size_t i = 0; i < rows; ++i) {
      state *= 0xd1342543de82ef95u;
      column[i] = static_cast<float>(state >> 40) / static_cast<float>(1u << 23) - 1.0f;
    }
  }
}

}  // namespace lockstep::internal
