// Texts in fields of a fixed size, as they travel between ranks: they end with a zero byte, or fill their
// field.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#include "integrations/nccl/result.hpp"

namespace lockstep::nccl {

/// `field` holds zeros before.
template <std::size_t N>
void put(std::array<char, N>& field, const std::string& text) {
  if (text.size() > N) throw Refusal(ncclInternalError, "\"" + text + "\" is too long for its field");
  std::memcpy(field.data(), text.data(), text.size());
}

template <std::size_t N>
std::string get(const std::array<char, N>& field) {
  return {field.data(), strnlen(field.data(), N)};
}

}  // namespace lockstep::nccl
