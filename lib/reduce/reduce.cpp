#include "lib/reduce/reduce.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "lib/base/element_types.hpp"
#include "lib/base/standard_floats.hpp"
#include "lib/reduce/copy.hpp"
#include "lib/reduce/kernel.hpp"

namespace lockstep::internal {
namespace {

/// A user's op works on blocks of this size in two scratch buffers on the stack: large enough to hide the
/// cost of a callback from an interpreted language, small enough for L1 together with the sources' blocks,
/// and for any thread's stack.
constexpr std::size_t kUserBlockBytes = 8 << 10;

const void* at_byte(const void* base, std::size_t offset) {
  return static_cast<const std::byte*>(base) + offset;
}
void* at_byte(void* base, std::size_t offset) { return static_cast<std::byte*>(base) + offset; }

/// combine(in, inout) stores in op inout, so the value so far is `in` and a copy of the next source is
/// `inout`.
void reduce_user(const Reduction& r, std::span<const void* const> sources,
                 std::span<void* const> destinations) {
  alignas(64) std::byte buffers[2][kUserBlockBytes];
  const std::size_t size = size_of(r.type);
  const std::size_t block = kUserBlockBytes / size;
  for (std::size_t done = 0; done < r.count; done += block) {
    const std::size_t count = std::min(block, r.count - done);
    std::byte* value = buffers[0];
    std::byte* next = buffers[1];
    std::memcpy(value, at_byte(sources[0], done * size), count * size);
    for (const void* source : sources.subspan(1)) {
      std::memcpy(next, at_byte(source, done * size), count * size);
      r.user->combine(value, next, count, r.user->context);
      std::swap(value, next);
    }
    for (void* destination : destinations)
      std::memcpy(at_byte(destination, done * size), value, count * size);
  }
}

}  // namespace

KernelTable build_kernel_table() {
  KernelTable table;
  add_scalar_kernels(table);
  add_float_kernels(table);
  add_half_kernels(table);
  add_fp8_kernels(table);
  add_integer_kernels(table);
  return table;
}

const KernelTable& kernel_table() noexcept {
  static const KernelTable table = build_kernel_table();
  return table;
}

Status check_reduction(DataType type, ReduceOp op) {
  const auto type_index = static_cast<std::size_t>(type), op_index = static_cast<std::size_t>(op);
  if (type_index >= kDataTypeCount) {
    return Status(ErrorCode::invalid_argument, "data type " + std::to_string(type_index) +
                                                   " does not exist: use one of lockstep::DataType");
  }
  if (op_index >= kReduceOpCount) {
    return Status(ErrorCode::invalid_argument,
                  "reduction " + std::to_string(op_index) + " does not exist: use one of lockstep::ReduceOp");
  }
  if (op == ReduceOp::user || kernel_table().at(type, op) != nullptr) return Status();
  const auto refuse = [&](const std::string& needs, const std::string& instead) {
    return Status(ErrorCode::invalid_argument, std::string(name_of(op)) + " needs " + needs + ", not " +
                                                   std::string(name_of(type)) + ": " + instead);
  };
  if (op == ReduceOp::premul_sum) {
    return refuse("a real float or integer type", "scale the input yourself and use sum");
  }
  if (op >= ReduceOp::band && op <= ReduceOp::bxor) {
    return refuse("an integer or boolean type", "reduce the bits as an unsigned type of the same size");
  }
  if (is_complex(type)) return refuse("an ordered type", "use sum, prod or avg, or a user-defined op");
  return refuse("an arithmetic type", "use sum for or, prod for and");
}

void reduce(const Reduction& reduction, std::span<const void* const> sources,
            std::span<void* const> destinations) {
  assert(!sources.empty() && !destinations.empty());
  if (reduction.count == 0) return;
  const StandardFloats floats;
  if (reduction.op == ReduceOp::user) return reduce_user(reduction, sources, destinations);
  const std::size_t bytes = reduction.count * size_of(reduction.type);
  const bool past_caches = reduction.past_caches || bytes >= nontemporal_threshold();
  const bool divides = reduction.op == ReduceOp::avg && reduction.divisor != 0 && reduction.divisor != 1;
  if (sources.size() == 1 && !divides) {
    for (void* destination : destinations) copy_bytes(destination, sources[0], bytes, past_caches);
    return;
  }
  const ReduceOp op = reduction.op == ReduceOp::avg && !divides ? ReduceOp::sum : reduction.op;
  const Kernel kernel = kernel_table().at(reduction.type, op);
  assert(kernel != nullptr);
  kernel({.sources = sources.data(),
          .source_count = sources.size(),
          .destinations = destinations.data(),
          .destination_count = destinations.size(),
          .count = reduction.count,
          .divisor = reduction.divisor,
          .past_caches = past_caches,
          .ends_backwards = reduction.ends_backwards});
}

void scale_copy(DataType type, const void* input, void* output, std::size_t count, double factor) {
  const Kernel kernel = kernel_table().scale(type);
  assert(kernel != nullptr && "callers ask check_reduction(type, premul_sum) first");
  const StandardFloats floats;
  // The kernels count on a NaN of the common kind, whose low bits are zero.
  if (std::isnan(factor)) factor = std::numeric_limits<double>::quiet_NaN();
  kernel({.sources = &input,
          .source_count = 1,
          .destinations = &output,
          .destination_count = 1,
          .count = count,
          .factor = factor});
}

}  // namespace lockstep::internal
