// f32 to and from what is smaller on the wire: f16, bf16, the 8-bit floats, and i8; one factor for all
// elements, or one scale for each block of them. SIMD chosen at run time; every result is the same on every
// instruction set, and in whatever mode the calling thread's arithmetic is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/types.hpp"

namespace lockstep::internal {

enum class Into : std::uint8_t { replace, add };

/// What one type has; null where it has not. The functions below look it up.
struct Conversion {
  void (*narrow)(const float*, void*, std::size_t, float) = nullptr;
  void (*widen)(const void*, float*, std::size_t, float) = nullptr;
  void (*quantise)(const float*, std::size_t, std::size_t, float*, void*) = nullptr;
  void (*dequantise)(const float*, const void*, std::size_t, std::size_t, float, float*, Into) = nullptr;
};

/// True for the types that narrow() writes.
bool is_narrow(DataType type) noexcept;

/// output[i] = input[i] * factor, rounded to nearest, ties to even. Overflow as lib/base/float16.hpp says; i8
/// saturates at -127 and 127 and has no NaN (any value). The buffers must not overlap.
void narrow(DataType to, const float* input, void* output, std::size_t count, float factor);

/// output[i] = input[i] * factor.
void widen(DataType from, const void* input, float* output, std::size_t count, float factor);

/// Blocks of `block` elements, the last one possibly shorter. scales[b] is such that the largest magnitude of
/// block b becomes the largest finite number of the type `to`: f8e4m3, f8e5m2 or i8. A block whose values are
/// all zero, or too small for their scale to have an inverse, becomes zero; one with an infinity or a NaN
/// becomes NaN as a whole, since its scale is.
void quantise(DataType to, const float* input, std::size_t count, std::size_t block, float* scales,
              void* codes);

/// The values of the codes times `factor` replace those in `output`, or are added to them.
void dequantise(DataType from, const float* scales, const void* codes, std::size_t count, std::size_t block,
                float factor, float* output, Into into);

}  // namespace lockstep::internal
