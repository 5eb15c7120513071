// Text that nobody guesses: secrets, and names that only those know who were told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/hexadecimal.hpp"

namespace lockstep::internal {

/// So many bytes of the operating system's secure generator, in hexadecimal digits.
inline std::string random_text(std::size_t bytes) {
  std::vector<std::uint8_t> values(bytes);
  secure_random(values);
  return hexadecimal(std::as_bytes(std::span(values)));
}

}  // namespace lockstep::internal
