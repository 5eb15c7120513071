// SHA-256 and HMAC-SHA256 (RFC 2104), by OpenSSL.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace lockstep::internal {

using Digest = std::array<std::byte, 32>;

Digest sha256(std::span<const std::byte> message);
/// `key` may be empty.
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
/// Takes the same time wherever the two differ.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace lockstep::internal
