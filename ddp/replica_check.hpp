// Do all ranks have the same parameters? Hashes are compared; when they differ, the first parameter and rank
// that deviate are named.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddp/closing_exchange.hpp"
#include "lib/base/status.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// A hash of each parameter's values.
std::vector<std::uint64_t> hash_values(std::span<const Parameter> parameters);
/// One for all.
std::uint64_t combined(std::span<const std::uint64_t> hashes);

/// `hashes[r * parameters.size() + i]` is rank r's hash of parameter i. Mismatch when two differ: names the
/// first such parameter and the lowest rank that has not what most ranks have. The same on all ranks. Pure.
Status compare_replicas(std::span<const std::uint64_t> hashes, std::span<const Parameter> parameters);

/// After closing.exchange(), whose records carry the combined() `hashes` of each rank: throws that mismatch
/// on all ranks unless they are equal. Collective where they are not.
void require_equal_replicas(ClosingExchange& closing, std::span<const std::uint64_t> hashes,
                            std::span<const Parameter> parameters);

}  // namespace lockstep::internal
