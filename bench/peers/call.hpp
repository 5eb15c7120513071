// What one contender is asked to measure: an operation, its size, and how long to measure it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace peers {

enum class Op {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  gather,
  scatter,
  all_to_all,
  barrier
};

std::string_view name_of(Op op);
std::optional<Op> op_named(std::string_view name);

/// Rooted operations have this root.
inline constexpr int kRoot = 0;

/// What all libraries can be compared in is f32 and sum.
enum class Element { f32, f16, bf16, i64 };
enum class Reduction { sum, max };
std::size_t size_of(Element element);

/// What is reduced, and how: "f32", "bf16", "f32-max".
struct Kind {
  Element element = Element::f32;
  Reduction reduction = Reduction::sum;
  bool operator==(const Kind&) const = default;
};
std::optional<Kind> kind_named(std::string_view name);

/// `bytes` is the whole vector of all_reduce, reduce and broadcast, all that is gathered of all_gather and
/// gather, and the send buffer (of the root, or of each rank) of reduce_scatter, scatter and all_to_all.
struct Call {
  Op op = Op::all_reduce;
  std::size_t bytes = 0;
  std::string variant;  ///< What else the contender is told: its kind of buffers, or its algorithm.
  int rank = 0, world = 1;
  Kind kind{};

  /// Elements as the call takes them: the whole vector, or one rank's block.
  std::size_t count() const;
  std::size_t input_count() const;
  std::size_t output_count() const;
  /// all_reduce and broadcast have one buffer.
  bool in_place() const { return op == Op::all_reduce || op == Op::broadcast; }
  bool registered() const { return variant == "registered"; }
};

/// One line of the driver: "OP BYTES VARIANT BUDGET_US WARMUPS LEAST MOST", where "VARIANT/KIND" says what is
/// reduced.
struct Order {
  Op op = Op::all_reduce;
  std::size_t bytes = 0;
  std::string variant;
  Kind kind{};
  double budget_us = 0;  ///< Iterations are timed for about this long,
  int warmups = 0;
  int least = 1, most = 1;  ///< but at least and at most so many.
};
/// Throws std::runtime_error for a line that is no order.
Order parse_order(const std::string& line);

}  // namespace peers
