// The kernels there are: one list for nvcc, which makes kernels of it, and for whoever runs their bodies on
// the host.
#pragma once

#include "lib/reduce/cuda/pass.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal::cuda {

/// Each function calls `add.template operator()<Element, Op>(type, op)` for every kernel of its family.

template <class Element, class Add>
void list_ordered(DataType type, Add add) {
  add.template operator()<Element, element::Sum>(type, ReduceOp::sum);
  add.template operator()<Element, element::Min>(type, ReduceOp::min);
  add.template operator()<Element, element::Max>(type, ReduceOp::max);
}

template <class Element, class Add>
void list_arithmetic(DataType type, Add add) {
  list_ordered<Element>(type, add);
  add.template operator()<Element, element::Prod>(type, ReduceOp::prod);
}

template <class Element, class Add>
void list_unsigned(DataType type, Add add) {
  list_arithmetic<Element>(type, add);
  add.template operator()<Element, element::And>(type, ReduceOp::band);
  add.template operator()<Element, element::Or>(type, ReduceOp::bor);
  add.template operator()<Element, element::Xor>(type, ReduceOp::bxor);
}

template <class Add>
void list_floats(Add add) {
  list_arithmetic<element::Direct<float>>(DataType::f32, add);
  list_arithmetic<element::Direct<double>>(DataType::f64, add);
  add.template operator()<element::Direct<element::Complex<float>>, element::Prod>(DataType::complex64,
                                                                                   ReduceOp::prod);
  add.template operator()<element::Direct<element::Complex<double>>, element::Prod>(DataType::complex128,
                                                                                    ReduceOp::prod);
}

template <class Add>
void list_small_floats(Add add) {
  list_arithmetic<element::Widened<F16>>(DataType::f16, add);
  list_arithmetic<element::Widened<BF16>>(DataType::bf16, add);
  list_arithmetic<element::Widened<F8E4M3>>(DataType::f8e4m3, add);
  list_arithmetic<element::Widened<F8E5M2>>(DataType::f8e5m2, add);
}

template <class Add>
void list_integers(Add add) {
  list_unsigned<element::Direct<std::uint8_t>>(DataType::u8, add);
  list_unsigned<element::Direct<std::uint32_t>>(DataType::u32, add);
  list_unsigned<element::Direct<std::uint64_t>>(DataType::u64, add);
  list_ordered<element::Direct<std::int8_t>>(DataType::i8, add);
  list_ordered<element::Direct<std::int32_t>>(DataType::i32, add);
  list_ordered<element::Direct<std::int64_t>>(DataType::i64, add);
}

/// On the host; for nvcc each family is a file.
template <class Add>
void list_all(Add add) {
  list_floats(add);
  list_small_floats(add);
  list_integers(add);
}

}  // namespace lockstep::internal::cuda
