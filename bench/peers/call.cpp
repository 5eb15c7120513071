#include "bench/peers/call.hpp"

#include <array>
#include <sstream>
#include <stdexcept>

namespace peers {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"all_reduce", "reduce",         "broadcast",
                                                    "all_gather", "reduce_scatter", "gather",
                                                    "scatter",    "all_to_all",     "barrier"};

bool blocks_in(Op op) { return op == Op::reduce_scatter || op == Op::scatter || op == Op::all_to_all; }
bool blocks_out(Op op) { return op == Op::all_gather || op == Op::gather || op == Op::all_to_all; }

}  // namespace

std::string_view name_of(Op op) { return kNames[static_cast<std::size_t>(op)]; }

std::optional<Op> op_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

std::size_t Call::count() const {
  if (op == Op::barrier) return 0;
  const bool blocked = blocks_in(op) || blocks_out(op);
  return bytes / sizeof(float) / (blocked ? static_cast<std::size_t>(world) : 1);
}

std::size_t Call::input_count() const {
  return count() * (blocks_in(op) ? static_cast<std::size_t>(world) : 1);
}

std::size_t Call::output_count() const {
  return count() * (blocks_out(op) ? static_cast<std::size_t>(world) : 1);
}

Order parse_order(const std::string& line) {
  std::istringstream words(line);
  std::string op;
  Order order;
  words >> op >> order.bytes >> order.variant >> order.budget_us >> order.warmups >> order.least >>
      order.most;
  const auto known = op_named(op);
  if (!words || !known) throw std::runtime_error("not an order: " + line);
  order.op = *known;
  return order;
}

}  // namespace peers
