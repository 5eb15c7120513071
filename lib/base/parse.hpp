// Numbers as people write them in variables and on command lines. Nothing but the number may be in the text:
// no spaces, no trailing characters. nullopt when it does not parse or does not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::internal {

/// Decimal, with an optional minus sign.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// 1, true, yes, on; 0, false, no, off.
std::optional<bool> parse_flag(std::string_view text);

/// 512, 64K, 1M, 2G, 1T: powers of 1024, upper or lower case.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

/// 500ms, 30s, 5m, 2h, in milliseconds. Never negative, and never without a unit, which people would guess
/// differently, except 0.
std::optional<std::int64_t> parse_milliseconds(std::string_view text);

}  // namespace lockstep::internal
