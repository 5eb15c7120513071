// Kernels of f32 and f64.
#include "lib/reduce/simd.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/reduce/float_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "lib/reduce/simd_pass-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {

void fill_floats([[maybe_unused]] KernelTable& table) {
#if HWY_TARGET != HWY_SCALAR
  fill_float<Direct<float>>(table, DataType::f32);
  fill_float<Direct<double>>(table, DataType::f64);
#endif
}

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::internal {
HWY_EXPORT(fill_floats);
void add_float_kernels(KernelTable& table) { HWY_DYNAMIC_DISPATCH(fill_floats)(table); }
}  // namespace lockstep::internal
#endif
