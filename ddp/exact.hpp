// Numbers in texts that ranks compare: two that differ never look the same.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace lockstep::internal {

/// The shortest decimal number that is read as `value` again: "0.1", "1e-08".
inline std::string exact(double value) {
  std::array<char, 32> text;  // A double needs 24.
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace lockstep::internal
