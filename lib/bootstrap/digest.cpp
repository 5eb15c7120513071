#include "lib/bootstrap/digest.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstdlib>

namespace lockstep::internal {
namespace {

const unsigned char* chars(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
unsigned char* chars(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

/// A program may exit while this library's threads still answer peers: OpenSSL must not clean up before them.
/// It heeds what its first user asks for.
void keep_openssl_at_exit() {
  static const int once = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  static_cast<void>(once);
}

}  // namespace

Digest sha256(std::span<const std::byte> message) {
  keep_openssl_at_exit();
  Digest digest{};
  // Fails only when OpenSSL itself is broken; going on without authentication is no choice.
  if (EVP_Digest(message.data(), message.size(), chars(digest.data()), nullptr, EVP_sha256(), nullptr) != 1)
    std::abort();
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  keep_openssl_at_exit();
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
