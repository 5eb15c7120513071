// Every defined (type, op) in plain C++: the definition in code, and what runs where no SIMD kernel exists.
#include <initializer_list>

#include "lib/reduce/element.hpp"
#include "lib/reduce/kernel.hpp"

namespace lockstep::internal {
namespace {

using namespace element;

// What happens to a combined value before it is stored.
struct Keep {
  template <typename T>
  static T apply(T value, const Pass&) {
    return value;
  }
};
struct Divide {
  template <typename T>
  static T apply(T value, const Pass& pass) {
    return divided(value, pass.divisor);
  }
};
struct Multiply {
  template <typename T>
  static T apply(T value, const Pass& pass) {
    return scaled(value, pass.factor);
  }
};

template <typename Element, typename Op, typename Finish = Keep>
void run(const Pass& pass) {
  using Stored = typename Element::Stored;
  for (std::size_t i = 0; i < pass.count; ++i) {
    auto value = Element::load(static_cast<const Stored*>(pass.sources[0])[i]);
    for (std::size_t s = 1; s < pass.source_count; ++s) {
      value = Op::apply(value, Element::load(static_cast<const Stored*>(pass.sources[s])[i]));
    }
    const Stored result = Element::store(Finish::apply(value, pass));
    for (std::size_t d = 0; d < pass.destination_count; ++d)
      static_cast<Stored*>(pass.destinations[d])[i] = result;
  }
}

/// Sums and quotients of complex numbers are those of their parts.
template <DataType kPart, ReduceOp kOp>
void run_parts(const Pass& pass) {
  Pass parts = pass;
  parts.count *= 2;
  kernel_table().at(kPart, kOp)(parts);
}

template <typename Element>
void add_arithmetic(KernelTable& table, DataType type) {
  table.at(type, ReduceOp::sum) = run<Element, Sum>;
  table.at(type, ReduceOp::avg) = run<Element, Sum, Divide>;
  table.at(type, ReduceOp::prod) = run<Element, Prod>;
  table.at(type, ReduceOp::min) = run<Element, Min>;
  table.at(type, ReduceOp::max) = run<Element, Max>;
  table.at(type, ReduceOp::premul_sum) = run<Element, Sum>;
  table.scale(type) = run<Element, Sum, Multiply>;
}

template <typename T>
void add_integer(KernelTable& table, DataType type) {
  add_arithmetic<Direct<T>>(table, type);
  table.at(type, ReduceOp::band) = run<Direct<T>, And>;
  table.at(type, ReduceOp::bor) = run<Direct<T>, Or>;
  table.at(type, ReduceOp::bxor) = run<Direct<T>, Xor>;
}

template <typename Part, DataType kPart>
void add_complex(KernelTable& table, DataType type) {
  table.at(type, ReduceOp::sum) = run_parts<kPart, ReduceOp::sum>;
  table.at(type, ReduceOp::avg) = run_parts<kPart, ReduceOp::avg>;
  table.at(type, ReduceOp::prod) = run<Direct<Complex<Part>>, Prod>;
}

/// One byte that is 0 or 1, so that the logical operators are the bitwise ones.
void add_boolean(KernelTable& table) {
  using Byte = Direct<std::uint8_t>;
  const auto set = [&table](std::initializer_list<ReduceOp> ops, Kernel kernel) {
    for (const ReduceOp op : ops) table.at(DataType::boolean, op) = kernel;
  };
  set({ReduceOp::sum, ReduceOp::max, ReduceOp::bor}, run<Byte, Or>);
  set({ReduceOp::prod, ReduceOp::min, ReduceOp::band}, run<Byte, And>);
  set({ReduceOp::bxor}, run<Byte, Xor>);
}

}  // namespace

void add_scalar_kernels(KernelTable& table) {
  add_arithmetic<Widened<F16>>(table, DataType::f16);
  add_arithmetic<Widened<BF16>>(table, DataType::bf16);
  add_arithmetic<Widened<F8E4M3>>(table, DataType::f8e4m3);
  add_arithmetic<Widened<F8E5M2>>(table, DataType::f8e5m2);
  add_arithmetic<Direct<float>>(table, DataType::f32);
  add_arithmetic<Direct<double>>(table, DataType::f64);
  add_integer<std::int8_t>(table, DataType::i8);
  add_integer<std::uint8_t>(table, DataType::u8);
  add_integer<std::int32_t>(table, DataType::i32);
  add_integer<std::uint32_t>(table, DataType::u32);
  add_integer<std::int64_t>(table, DataType::i64);
  add_integer<std::uint64_t>(table, DataType::u64);
  add_complex<float, DataType::f32>(table, DataType::complex64);
  add_complex<double, DataType::f64>(table, DataType::complex128);
  add_boolean(table);
}

}  // namespace lockstep::internal
