#include "lib/base/parse.hpp"

#include <charconv>
#include <span>

namespace lockstep::internal {
namespace {

struct Unit {
  std::string_view suffix;
  std::uint64_t factor;
};
constexpr Unit kByteUnits[] = {{"", 1},           {"K", 1ull << 10}, {"k", 1ull << 10},
                               {"M", 1ull << 20}, {"m", 1ull << 20}, {"G", 1ull << 30},
                               {"g", 1ull << 30}, {"T", 1ull << 40}, {"t", 1ull << 40}};
constexpr Unit kDurationUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

/// An unsigned number followed by one of `units`.
std::optional<std::uint64_t> parse_scaled(std::string_view text, std::span<const Unit> units) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const Unit& unit : units) {
    if (unit.suffix != suffix) continue;
    if (number > UINT64_MAX / unit.factor) return std::nullopt;
    return number * unit.factor;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<bool> parse_flag(std::string_view text) {
  for (const std::string_view word : {"1", "true", "yes", "on"}) {
    if (text == word) return true;
  }
  for (const std::string_view word : {"0", "false", "no", "off"}) {
    if (text == word) return false;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) { return parse_scaled(text, kByteUnits); }

std::optional<std::int64_t> parse_milliseconds(std::string_view text) {
  if (text == "0") return 0;
  const std::optional<std::uint64_t> value = parse_scaled(text, kDurationUnits);
  if (!value || *value > INT64_MAX) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

}  // namespace lockstep::internal
