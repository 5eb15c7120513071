#include "collectives/select/network.hpp"

#include <bit>

#include "collectives/select/cost_model.hpp"

namespace lockstep::internal {
namespace {

/// 0, 1, 2, 3, 4, 6, 8, 12 ...: the nearest.
std::int64_t coarse(std::int64_t value) {
  if (value <= 0) return 0;
  const int dropped = std::bit_width(static_cast<std::uint64_t>(value)) - 2;
  if (dropped <= 0) return value;
  return (value + (std::int64_t{1} << (dropped - 1))) >> dropped << dropped;
}

}  // namespace

Network coarse(const MeasuredNetwork& measured) {
  const auto nanos = [](std::int64_t value) { return exact_cost(static_cast<double>(coarse(value)) * 1e-9); };
  const auto picos = [](std::int64_t value) {
    return exact_cost(static_cast<double>(coarse(value)) * 1e-12);
  };
  return {nanos(measured.latency), picos(measured.byte), nanos(measured.busy_latency),
          picos(measured.busy_byte)};
}

}  // namespace lockstep::internal
