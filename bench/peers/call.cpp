#include "bench/peers/call.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

namespace peers {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"all_reduce", "reduce",         "broadcast",
                                                    "all_gather", "reduce_scatter", "gather",
                                                    "scatter",    "all_to_all",     "barrier"};

constexpr std::array<std::string_view, 4> kElements = {"f32", "f16", "bf16", "i64"};
constexpr std::string_view kMax = "-max";

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

std::size_t size_of(Element element) { return element == Element::i64 ? 8 : element == Element::f32 ? 4 : 2; }

std::optional<Kind> kind_named(std::string_view name) {
  Kind kind;
  if (name.ends_with(kMax)) {
    kind.reduction = Reduction::max;
    name.remove_suffix(kMax.size());
  }
  const auto found = std::find(kElements.begin(), kElements.end(), name);
  if (found == kElements.end()) return std::nullopt;
  kind.element = static_cast<Element>(found - kElements.begin());
  return kind;
}

std::size_t Call::count() const {
  if (op == Op::barrier) return 0;
  const bool blocked = blocks_in(op) || blocks_out(op);
  return bytes / size_of(kind.element) / (blocked ? static_cast<std::size_t>(world) : 1);
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
  const auto slash = std::min(order.variant.find('/'), order.variant.size());
  const auto known = op_named(op);
  const std::optional<Kind> kind =
      slash == order.variant.size() ? Kind{} : kind_named(order.variant.substr(slash + 1));
  if (!words || !known || !kind) throw std::runtime_error("not an order: " + line);
  order.op = *known;
  order.kind = *kind;
  order.variant.resize(slash);
  return order;
}

}  // namespace peers
