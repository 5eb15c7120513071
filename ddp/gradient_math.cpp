#include "ddp/gradient_math.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "lib/base/hash.hpp"
#include "lib/reduce/element.hpp"

namespace lockstep::internal {
namespace {

/// Elements between two looks at the result: enough for the loop to be vectorised, few enough to stop early.
constexpr std::size_t kBlock = 4096;

template <typename Stored>
Stored load(const void* data, std::size_t index) noexcept {
  Stored stored;
  std::memcpy(&stored, static_cast<const std::byte*>(data) + index * sizeof stored, sizeof stored);
  return stored;
}

template <typename Element>
using BitsOf = std::conditional_t<
    std::is_integral_v<typename Element::Stored>, typename Element::Stored,
    std::conditional_t<sizeof(typename Element::Stored) == 4, std::uint32_t, std::uint64_t>>;

/// Whether no number has all bits of `top` set.
template <typename Bits>
bool none_at_top(const void* data, std::size_t count, Bits top) noexcept {
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t end = std::min(count, begin + kBlock);
    Bits found = 0;
    for (std::size_t i = begin; i < end; ++i) {
      found = static_cast<Bits>(found | ((load<Bits>(data, i) & top) == top ? 1 : 0));
    }
    if (found != 0) return false;
  }
  return true;
}

/// A number is not finite when all bits of infinity are set: its exponent's, or in a format without
/// infinities, where that is NaN, all but the sign.
struct AreFinite {
  const void* data;
  bool& result;

  template <class Element>
  void operator()(std::size_t count) const {
    const auto infinity = Element::store(std::numeric_limits<typename Element::Value>::infinity());
    result = none_at_top(data, count, std::bit_cast<BitsOf<Element>>(infinity));
  }
};

struct SumSquares {
  const void* data;
  double& total;

  template <class Element>
  void operator()(std::size_t count) const {
    constexpr std::size_t kLanes = 8;  // Independent sums: the additions need not wait for one another.
    std::array<double, kLanes> sums{};
    const auto add = [&](std::size_t i, std::size_t lane) {
      const auto value = static_cast<double>(Element::load(load<typename Element::Stored>(data, i)));
      sums[lane] += value * value;
    };
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    }
    for (; i < count; ++i) add(i, 0);
    for (const double sum : sums) total += sum;
  }
};

}  // namespace

bool is_gradient_type(DataType type) noexcept {
  return element::with_floats(type, 0, []<class>(std::size_t) {});
}

bool all_finite(DataType type, const void* data, std::size_t count) noexcept {
  bool result = false;
  return element::with_floats(type, count, AreFinite{data, result}) && result;
}

double squared_sum(DataType type, const void* data, std::size_t count) noexcept {
  double total = 0;
  const bool known = element::with_floats(type, count, SumSquares{data, total});
  return known ? total : std::numeric_limits<double>::quiet_NaN();
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept {
  constexpr std::size_t kLanes = 16;
  constexpr std::uint32_t kPrime = 0x9e3779b1;
  std::array<std::uint32_t, kLanes> lanes{};
  const std::size_t words = bytes / sizeof(std::uint32_t);
  std::size_t i = 0;
  for (; i + kLanes <= words; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = (lanes[lane] + load<std::uint32_t>(data, i + lane)) * kPrime;
      lanes[lane] ^= lanes[lane] >> 15;
    }
  }
  const std::size_t hashed = i * sizeof(std::uint32_t);
  const std::uint64_t tail = fnv1a({static_cast<const char*>(data) + hashed, bytes - hashed});
  return fnv1a({reinterpret_cast<const char*>(lanes.data()), sizeof lanes}, hash_combine(tail, bytes));
}

}  // namespace lockstep::internal
