#include "collectives/device/hosts/device_factor.hpp"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "lib/base/element_types.hpp"
#include "lib/reduce/element.hpp"

namespace lockstep::internal {
namespace {

template <typename T>
double number(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return static_cast<double>(value);
}

/// Of a real type: others have no factors.
double as_double(DataType type, const void* data) {
  switch (type) {
    case DataType::i8:
      return number<std::int8_t>(data);
    case DataType::u8:
      return number<std::uint8_t>(data);
    case DataType::i32:
      return number<std::int32_t>(data);
    case DataType::u32:
      return number<std::uint32_t>(data);
    case DataType::i64:
      return number<std::int64_t>(data);
    case DataType::u64:
      return number<std::uint64_t>(data);
    default:
      break;
  }
  double value = 0;
  const auto read_as = [&]<class Element>(std::uint64_t) {
    value = Element::load(*static_cast<const typename Element::Stored*>(data));
  };
  if (!element::with_floats(type, 1, read_as)) std::abort();
  return value;
}

}  // namespace

Result<double> host_factor(DataType type, const void* element) {
  const double factor = as_double(type, element);
  if (!is_integer(type) || std::abs(factor) < 0x1p53) return factor;
  return Status(
      ErrorCode::not_supported,
      "between hosts premul_sum of integers needs a factor of less than 2^53: scale the input yourself "
      "and use sum");
}

}  // namespace lockstep::internal
