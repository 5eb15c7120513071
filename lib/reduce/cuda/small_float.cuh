// Conversions of small floats by the GPU's own instructions, with the results of lib/base/float16.hpp but for
// the sign of a NaN in f16, bf16 and fp8 that are only passed on.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "lib/base/float16.hpp"
#include "lib/reduce/cuda/repair.hpp"

namespace lockstep::internal::cuda {

/// What has no instructions is computed bit by bit.
template <typename Float>
struct SmallFloatOf {
  static __device__ __forceinline__ float to_float(typename Float::Bits x) { return Float::to_float(x); }
  static __device__ __forceinline__ typename Float::Bits from_float(float x) { return Float::from_float(x); }
};

template <>
struct SmallFloatOf<F16> {
  static __device__ __forceinline__ float to_float(F16::Bits x) { return __half2float(__ushort_as_half(x)); }
  static __device__ __forceinline__ F16::Bits from_float(float x) {
    return __half_as_ushort(__float2half_rn(x));
  }
};

template <>
struct SmallFloatOf<BF16> {
  static __device__ __forceinline__ float to_float(BF16::Bits x) { return BF16::to_float(x); }  // A shift.
  static __device__ __forceinline__ BF16::Bits from_float(float x) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
/// The instruction that narrows saturates; what should have overflowed is put right.
template <typename Float, __nv_fp8_interpretation_t kFormat>
struct Fp8ByInstruction {
  static __device__ __forceinline__ float to_float(std::uint8_t x) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(x, kFormat)));
  }
  static __device__ __forceinline__ std::uint8_t from_float(float x) {
    return repair_saturated<Float>(x, __nv_cvt_float_to_fp8(x, __NV_SATFINITE, kFormat));
  }
};
template <>
struct SmallFloatOf<F8E4M3> : Fp8ByInstruction<F8E4M3, __NV_E4M3> {};
template <>
struct SmallFloatOf<F8E5M2> : Fp8ByInstruction<F8E5M2, __NV_E5M2> {};
#endif

}  // namespace lockstep::internal::cuda
