// The linear algebra of PowerSGD: a matrix M of m rows and n columns, row by row, and factors P (m x rank)
// and Q (n x rank), column by column.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::internal {

struct MatrixShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t count() const { return rows * columns; }
};

/// p = M q. The order of summation is this machine's affair: the result goes into an all_reduce.
void multiply(const float* m, MatrixShape shape, std::size_t rank, const float* q, float* p);

/// q = transposed(M) p.
void multiply_transposed(const float* m, MatrixShape shape, std::size_t rank, const float* p, float* q);

/// m = factor p transposed(q). Equal bits on every machine for equal inputs.
void expand(const float* p, const float* q, MatrixShape shape, std::size_t rank, float factor, float* m);

/// Makes the `rank` columns of `rows` elements orthonormal (Gram-Schmidt, twice for accuracy). A column that
/// depends on those before it becomes zero; with a NaN or an infinity anywhere all that it reaches becomes
/// NaN. Equal bits on every machine for equal inputs.
void orthonormalise(float* columns, std::size_t rows, std::size_t rank);

/// Makes 1 or -1 the largest element of each column that is finite and not zero.
void scale_columns(float* columns, std::size_t rows, std::size_t rank);

/// Fills those columns that are zero or not finite with numbers in [-1, 1) from `seed`. Equal on every
/// machine.
void refill_empty(float* columns, std::size_t rows, std::size_t rank, std::uint64_t seed);

}  // namespace lockstep::internal
