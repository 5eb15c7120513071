#include "collectives/engine/call_identity.hpp"

#include <cstring>

namespace lockstep::internal {
namespace {

std::uint64_t mix(std::uint64_t word) {
  word *= 0x9E3779B97F4A7C15u;
  return word ^ word >> 32;
}

}  // namespace

std::uint64_t hash_of(const CallFacts& facts) {
  std::uint64_t words[sizeof(CallFacts) / 8];
  std::memcpy(words, &facts, sizeof facts);
  std::uint64_t hash = 0;
  for (const std::uint64_t word : words) hash = mix(hash ^ word);
  return hash;
}

std::uint64_t fingerprint_of(std::uint64_t facts_hash, std::uint64_t sequence) {
  return mix(facts_hash ^ sequence);
}

Status fingerprint_mismatch(int member) { return Status(ErrorCode::mismatch, {}, member); }

}  // namespace lockstep::internal
