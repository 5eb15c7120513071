#include "ddp/replica_check.hpp"

#include <algorithm>

#include "ddp/bucket_plan.hpp"
#include "ddp/gradient_math.hpp"
#include "ddp/majority.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

/// The lowest rank whose hash is not that of most ranks; -1 when all are equal.
int deviating_rank(std::span<const std::uint64_t> hashes) {
  const std::uint64_t common = hashes[majority_rank(hashes)];
  const auto odd = std::find_if(hashes.begin(), hashes.end(), [&](std::uint64_t h) { return h != common; });
  return odd == hashes.end() ? -1 : static_cast<int>(odd - hashes.begin());
}

}  // namespace

std::vector<std::uint64_t> hash_values(std::span<const Parameter> parameters) {
  std::vector<std::uint64_t> hashes;
  for (const Parameter& p : parameters) {
    hashes.push_back(hash_bytes(p.value, element_count(p).value() * size_of(p.type)));
  }
  return hashes;
}

std::uint64_t combined(std::span<const std::uint64_t> hashes) {
  std::uint64_t all = kFnvOffset;
  for (const std::uint64_t hash : hashes) all = hash_combine(all, hash);
  return all;
}

Status compare_replicas(std::span<const std::uint64_t> hashes, std::span<const Parameter> parameters) {
  const std::size_t ranks = hashes.size() / parameters.size();
  std::vector<std::uint64_t> column(ranks);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (std::size_t r = 0; r < ranks; ++r) column[r] = hashes[r * parameters.size() + i];
    const int rank = deviating_rank(column);
    if (rank < 0) continue;
    return Status(ErrorCode::mismatch,
                  "the replicas differ: parameter " + std::to_string(i) + ", " + describe(parameters[i]) +
                      ", on rank " + std::to_string(rank) +
                      " is not what the other ranks have; look for an update that only some ranks make, "
                      "or random numbers of their own; a new Reducer makes the replicas equal again",
                  rank);
  }
  return {};
}

void require_equal_replicas(ClosingExchange& closing, std::span<const std::uint64_t> hashes,
                            std::span<const Parameter> parameters) {
  const auto records = closing.records();
  const bool equal = std::all_of(records.begin(), records.end(),
                                 [&](const StepRecord& r) { return r.values == records.front().values; });
  if (equal) return;
  compare_replicas(closing.gather_words(GatheringCall::wait, hashes), parameters).throw_if_error();
}

}  // namespace lockstep::internal
