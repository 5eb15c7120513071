// Kernels of the 8-bit floats.
#include "lib/reduce/simd.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/reduce/fp8_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "lib/reduce/small_float-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {

void fill_fp8([[maybe_unused]] KernelTable& table) {
#if HWY_TARGET != HWY_SCALAR
  fill_float<Widened<AnyFormat<F8E4M3>>>(table, DataType::f8e4m3);
  fill_float<Widened<AnyFormat<F8E5M2>>>(table, DataType::f8e5m2);
#endif
}

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::internal {
HWY_EXPORT(fill_fp8);
void add_fp8_kernels(KernelTable& table) { HWY_DYNAMIC_DISPATCH(fill_fp8)(table); }
}  // namespace lockstep::internal
#endif
