// Integers and texts as bytes, little-endian whatever the machine. The reader never looks past the bytes it
// was given and never allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "lib/base/status.hpp"

namespace lockstep::internal {

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// Appends to a string that the caller owns.
class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}

  template <typename T>
  requires(std::is_integral_v<T>) void integer(T value) {
    const auto bits = static_cast<std::make_unsigned_t<T>>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<char>((bits >> (8 * i)) & 0xff));
  }
  void raw(std::span<const std::byte> bytes) { out_ += as_text(bytes); }
  /// Length in 32 bits, then the bytes.
  void text(std::string_view value) {
    integer(static_cast<std::uint32_t>(value.size()));
    out_ += value;
  }

 private:
  std::string& out_;
};

/// Reads from the front. Each call returns false, and leaves the reader where it was, when the bytes do not
/// hold what was asked for.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t left() const { return bytes_.size(); }

  template <typename T>
  requires(std::is_integral_v<T>) bool integer(T& value) {
    if (bytes_.size() < sizeof(T)) return false;
    std::make_unsigned_t<T> bits = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bits |= static_cast<std::make_unsigned_t<T>>(std::to_integer<std::make_unsigned_t<T>>(bytes_[i])
                                                   << (8 * i));
    }
    value = static_cast<T>(bits);
    bytes_ = bytes_.subspan(sizeof(T));
    return true;
  }
  /// A status' code, in 32 bits: one that there is.
  bool code(ErrorCode& value) {
    WireReader ahead = *this;
    std::int32_t number = 0;
    const auto known = ahead.integer(number) ? error_code(number) : std::nullopt;
    if (!known) return false;
    value = *known;
    *this = ahead;
    return true;
  }
  bool raw(std::size_t count, std::span<const std::byte>& value) {
    if (bytes_.size() < count) return false;
    value = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return true;
  }
  bool text(std::size_t most, std::string_view& value) {
    WireReader ahead = *this;
    std::uint32_t size = 0;
    std::span<const std::byte> bytes;
    if (!ahead.integer(size) || size > most || !ahead.raw(size, bytes)) return false;
    value = as_text(bytes);
    *this = ahead;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace lockstep::internal
