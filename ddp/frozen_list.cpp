#include "ddp/frozen_list.hpp"

#include <algorithm>
#include <string>

#include "ddp/first_to_differ.hpp"
#include "ddp/marks.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {

std::vector<bool> agree_on_frozen(ClosingExchange& closing, std::span<const std::size_t> list,
                                  std::size_t parameters) {
  std::vector<bool> frozen(parameters);
  bool valid = true;
  for (const std::size_t i : list) {
    valid &= i < parameters;
    if (i < parameters) frozen[i] = true;
  }
  // An index that does not exist makes the list differ from any other.
  std::uint64_t hash = hash_combine(kFnvOffset, valid ? 1 : 0);
  for (const bool bit : frozen) hash = hash_combine(hash, bit ? 1 : 0);
  const auto hashes = closing.gather_words(GatheringCall::freeze, {&hash, 1});
  const int rank = first_to_differ(hashes);
  if (rank >= 0) {
    throw Error(ErrorCode::mismatch,
                "freeze: rank " + std::to_string(rank) + " has another list than rank 0; pass equal lists",
                rank);
  }
  if (!valid) require_index("freeze", *std::max_element(list.begin(), list.end()), parameters);
  return frozen;
}

}  // namespace lockstep::internal
