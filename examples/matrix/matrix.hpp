// The one matrix product that the networks of the examples need.
#pragma once

#include <cstddef>

namespace examples {

/// A matrix that somebody else owns, read with any strides: element (i, j) is data[i * row_stride + j *
/// column_stride].
struct MatrixView {
  const float* data;
  std::size_t rows;
  std::size_t columns;
  std::size_t row_stride;
  std::size_t column_stride;

  float at(std::size_t i, std::size_t j) const { return data[i * row_stride + j * column_stride]; }
};

inline MatrixView row_major(const float* data, std::size_t rows, std::size_t columns) {
  return {data, rows, columns, columns, 1};
}
inline MatrixView transposed(const MatrixView& m) {
  return {m.data, m.columns, m.rows, m.column_stride, m.row_stride};
}

/// c += a * b, where c is row-major with a.rows rows and b.columns columns, and overlaps neither. The order
/// of the additions for one element of c depends on a.columns alone, so a row of c does not change when other
/// rows join the batch.
void multiply_add(const MatrixView& a, const MatrixView& b, float* c);

}  // namespace examples
