// CallIdentity: by what the members of a domain know that they are in the same call.
#pragma once

#include <cstdint>

#include "lib/base/status.hpp"
#include "transports/frame.hpp"

namespace lockstep::internal {

/// A call as peers must have made it too.
struct CallIdentity {
  std::uint64_t sequence = 0;
  std::uint64_t fingerprint = 0;  ///< fingerprint_of(hash_of(facts), sequence)
};

/// Alike on all ranks of equal facts.
std::uint64_t hash_of(const CallFacts& facts);
std::uint64_t fingerprint_of(std::uint64_t facts_hash, std::uint64_t sequence);

/// ErrorCode::mismatch with `member` as culprit and no text: the engine explains it from the call records.
Status fingerprint_mismatch(int member);

}  // namespace lockstep::internal
