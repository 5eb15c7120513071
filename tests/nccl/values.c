#include "values.h"

#include <stdint.h>
#include <string.h>

size_t size_of_type(ncclDataType_t type) {
  static const size_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

/* The integers 0 to 8 as small floats: sign, `exponent` and `mantissa` bits. */
static unsigned small_float(int value, int exponent, int mantissa) {
  int power = 0;
  if (value == 0) return 0;
  while (value >> (power + 1) != 0) ++power;
  const unsigned bias = (1u << (exponent - 1)) - 1;
  const unsigned fraction = ((unsigned)value << mantissa >> power) - (1u << mantissa);
  return ((bias + (unsigned)power) << mantissa) + fraction;
}

static uint64_t bits_of(ncclDataType_t type, int value) {
  const float f = (float)value;
  const double d = value;
  uint64_t bits = 0;
  switch (type) {
    case ncclFloat16:
      return small_float(value, 5, 10);
    case ncclBfloat16:
      return small_float(value, 8, 7);
    case ncclFloat8e4m3:
      return small_float(value, 4, 3);
    case ncclFloat8e5m2:
      return small_float(value, 5, 2);
    case ncclFloat32:
      memcpy(&bits, &f, sizeof f);
      return bits;
    case ncclFloat64:
      memcpy(&bits, &d, sizeof d);
      return bits;
    default:
      return (uint64_t)value;
  }
}

void put_value(ncclDataType_t type, void* elements, size_t index, int value) {
  const uint64_t bits = bits_of(type, value);
  const size_t size = size_of_type(type);
  memcpy((char*)elements + index * size, &bits, size); /* little-endian */
}

int get_value(ncclDataType_t type, const void* elements, size_t index) {
  uint64_t bits = 0;
  const size_t size = size_of_type(type);
  memcpy(&bits, (const char*)elements + index * size, size);
  for (int value = 0; value <= 8; ++value) {
    if (bits_of(type, value) == bits) return value;
  }
  return -1;
}

/* One rank adds a multiple of the number of ranks, so that averages are whole. */
int input_value(int rank, int ranks, size_t index) {
  const int common = (int)(index % 5 < 3);
  const int extra = (int)(index % 7 < 4);
  return common + (rank == ranks - 1 ? ranks * extra : 0);
}

int scale_of(int rank) { return rank % 2 + 1; }

int reduced_value(int ranks, size_t index, ncclRedOp_t op, int premul) {
  int result = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int value = input_value(rank, ranks, index) * (premul ? scale_of(rank) : 1);
    if (rank == 0) {
      result = value;
    } else if (premul || op == ncclSum || op == ncclAvg) {
      result += value;
    } else if (op == ncclProd) {
      result *= value;
    } else if (op == ncclMax ? value > result : value < result) {
      result = value;
    }
  }
  return !premul && op == ncclAvg ? result / ranks : result;
}
