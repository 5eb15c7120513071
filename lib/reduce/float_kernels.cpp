// Kernels of f32 and f64.
#include "lib/reduce/simd.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/reduce/float_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "lib/reduce/simd_pass-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {

template <typename T>
void fill_float(KernelTable& table, DataType type) {
  using Element = Direct<T>;
  table.at(type, ReduceOp::sum) = run<Element, Sum>;
  table.at(type, ReduceOp::premul_sum) = run<Element, Sum>;
  table.at(type, ReduceOp::avg) = run<Element, Sum, Divide<typename Element::D>>;
  table.scale(type) = run<Element, Sum, Multiply<typename Element::D>>;
  table.at(type, ReduceOp::prod) = run<Element, Prod>;
  table.at(type, ReduceOp::min) = run<Element, Min>;
  table.at(type, ReduceOp::max) = run<Element, Max>;
}

void fill_floats([[maybe_unused]] KernelTable& table) {
#if HWY_TARGET != HWY_SCALAR
  fill_float<float>(table, DataType::f32);
  fill_float<double>(table, DataType::f64);
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
