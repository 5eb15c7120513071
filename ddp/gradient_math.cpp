#include "ddp/gradient_math.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "lib/base/float16.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

/// Elements between two looks at the result: enough for the loop to be vectorised, few enough to stop early.
constexpr std::size_t kBlock = 4096;

template <typename Bits>
Bits load(const void* data, std::size_t index) noexcept {
  Bits bits;
  std::memcpy(&bits, static_cast<const std::byte*>(data) + index * sizeof bits, sizeof bits);
  return bits;
}

/// A number is not finite when all bits of `top` are set: its exponent, or in a format without infinities all
/// but the sign.
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

template <typename Bits, typename ToNumber>
double sum_of_squares(const void* data, std::size_t count, ToNumber to_number) noexcept {
  constexpr std::size_t kLanes = 8;  // Independent sums: the additions need not wait for one another.
  std::array<double, kLanes> sums{};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = to_number(load<Bits>(data, i + lane));
      sums[lane] += value * value;
    }
  }
  for (; i < count; ++i) {
    const double value = to_number(load<Bits>(data, i));
    sums[0] += value * value;
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

template <typename Small>
double sum_of_small_squares(const void* data, std::size_t count) noexcept {
  return sum_of_squares<typename Small::Bits>(
      data, count, [](typename Small::Bits bits) { return static_cast<double>(Small::to_float(bits)); });
}

}  // namespace

bool is_gradient_type(DataType type) noexcept {
  switch (type) {
    case DataType::f16:
    case DataType::bf16:
    case DataType::f32:
    case DataType::f64:
    case DataType::complex64:
    case DataType::complex128:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
      return true;
    default:
      return false;
  }
}

bool all_finite(DataType type, const void* data, std::size_t count) noexcept {
  switch (type) {
    case DataType::f16:
      return none_at_top<std::uint16_t>(data, count, 0x7c00);
    case DataType::bf16:
      return none_at_top<std::uint16_t>(data, count, 0x7f80);
    case DataType::f64:
      return none_at_top<std::uint64_t>(data, count, 0x7ff0000000000000);
    case DataType::complex64:
      return none_at_top<std::uint32_t>(data, 2 * count, 0x7f800000);
    case DataType::complex128:
      return none_at_top<std::uint64_t>(data, 2 * count, 0x7ff0000000000000);
    case DataType::f8e4m3:
      return none_at_top<std::uint8_t>(data, count, 0x7f);
    case DataType::f8e5m2:
      return none_at_top<std::uint8_t>(data, count, 0x7c);
    default:
      return none_at_top<std::uint32_t>(data, count, 0x7f800000);
  }
}

double squared_sum(DataType type, const void* data, std::size_t count) noexcept {
  const auto single = [](std::uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); };
  const auto twice = [](std::uint64_t bits) { return std::bit_cast<double>(bits); };
  switch (type) {
    case DataType::f16:
      return sum_of_small_squares<F16>(data, count);
    case DataType::bf16:
      return sum_of_small_squares<BF16>(data, count);
    case DataType::f64:
      return sum_of_squares<std::uint64_t>(data, count, twice);
    case DataType::complex64:
      return sum_of_squares<std::uint32_t>(data, 2 * count, single);
    case DataType::complex128:
      return sum_of_squares<std::uint64_t>(data, 2 * count, twice);
    case DataType::f8e4m3:
      return sum_of_small_squares<F8E4M3>(data, count);
    case DataType::f8e5m2:
      return sum_of_small_squares<F8E5M2>(data, count);
    default:
      return sum_of_squares<std::uint32_t>(data, count, single);
  }
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
