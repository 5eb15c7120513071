// What a fuzzer's bytes decide, taken from the front; zeros where none are left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::internal::fuzz {

/// What must hold whatever the bytes are: else the fuzzer has found something.
inline void require(bool holds) {
  if (!holds) std::abort();
}

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(std::as_bytes(std::span(data, size))) {}

  bool empty() const { return left_.empty(); }
  /// All that is left, or its first bytes.
  std::span<const std::byte> bytes(std::size_t most = SIZE_MAX) {
    const auto taken = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  std::string_view text(std::size_t most = SIZE_MAX) {
    const auto taken = bytes(most);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  template <typename T>
  T take() {
    T value{};
    const auto from = bytes(sizeof value);
    std::memcpy(&value, from.data(), from.size());
    return value;
  }
  std::size_t below(std::size_t end) { return take<std::uint8_t>() % end; }
  bool flag() { return (take<std::uint8_t>() & 1) != 0; }
  /// A number of which the small ones, powers of two and their neighbours are likely.
  std::uint64_t number() {
    const auto small = take<std::int8_t>();
    switch (below(4)) {
      case 0:
        return take<std::uint64_t>();
      case 1:
        return (std::uint64_t{1} << below(64)) + static_cast<std::uint64_t>(std::int64_t{small});
      default:
        return static_cast<std::uint8_t>(small);
    }
  }

 private:
  std::span<const std::byte> left_;
};

/// A good text in which some was cut out, and other put in its place.
inline std::string changed(std::string text, Input& input) {
  const std::size_t changes = 1 + input.below(4);
  for (std::size_t i = 0; i < changes && !text.empty(); ++i) {
    const std::size_t at = input.take<std::uint16_t>() % text.size();
    const std::size_t taken = input.below(input.flag() ? 256 : 3);
    text.replace(at, taken, input.text(input.below(24)));
  }
  return text;
}

}  // namespace lockstep::internal::fuzz
