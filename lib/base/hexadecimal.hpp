// Bytes as text.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::internal {

/// Two digits a byte, in lower case.
inline std::string hexadecimal(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte >> 4)];
    text += kDigits[std::to_integer<unsigned>(byte & std::byte{15})];
  }
  return text;
}

}  // namespace lockstep::internal
