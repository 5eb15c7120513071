#include "lib/bootstrap/digest.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>

#include "lib/base/env.hpp"

namespace lockstep::internal {
namespace {

const unsigned char* chars(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* chars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

/// Whether OpenSSL can be used. A program may exit while this library's threads still answer peers: it must
/// not clean up before them. It heeds what its first user asks for, which another library may have been.
bool has_openssl() {
  static const int kept_at_exit = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  return kept_at_exit == 1 && OPENSSL_init_crypto(0, nullptr) == 1;
}

/// Where OpenSSL has cleaned up, the process is about to end, and gives nobody an answer that could be
/// accepted.
Digest no_digest() {
  Digest unknown{};
  secure_random({chars(unknown.data()), unknown.size()});
  return unknown;
}

}  // namespace

Digest sha256(std::span<const std::byte> message) {
  if (!has_openssl()) return no_digest();
  Digest digest{};
  // Fails only when OpenSSL itself is broken; going on without authentication is no choice.
  if (EVP_Digest(message.data(), message.size(), chars(digest.data()), nullptr, EVP_sha256(), nullptr) != 1)
    std::abort();
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  if (!has_openssl()) return no_digest();
  static constexpr std::byte kNoKey{};  // A null key would mean "the key of the last call" to OpenSSL.
  const std::byte* key_data = key.empty() ? &kNoKey : key.data();
  Digest digest{};
  if (HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()), chars(message.data()), message.size(),
           chars(digest.data()), nullptr) == nullptr) {
    std::abort();
  }
  return digest;
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lockstep::internal
