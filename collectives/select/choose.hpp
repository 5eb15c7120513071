// Selection: which algorithm runs a call. Depends on shared facts only, so that all ranks choose alike.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/programs/program.hpp"
#include "collectives/select/choice_table.hpp"
#include "transports/frame.hpp"

namespace lockstep::internal {

/// What the communicator can run on; equal on all ranks.
struct Capabilities {
  int world = 1;
  bool domain = false;           ///< All ranks share memory.
  std::size_t inline_bytes = 0;  ///< Payload that may ride in the flags' lines; 0: no barrier either.
};

struct Selection {
  bool inline_line = false;
  const Algorithm* links = nullptr;   ///< Set: run over links.
  const Algorithm* staged = nullptr;  ///< Domain candidates otherwise; see DomainChoice.
  const Algorithm* registered = nullptr;
  const Algorithm* pulled = nullptr;
  bool pull_untried = false;  ///< Asked for by name: pulled where that can be, without a trial.
};

/// Whether sums of some of the ranks may be stored in the type: see Combine::keep_in_range().
inline bool stores_partial_sums(const Selection& selection) {
  return selection.links != nullptr || (selection.staged != nullptr && selection.staged->stores_partial_sums);
}

/// Chooses for `facts` (facts.algorithm > 0: that row of the table, checked by the caller to be for this
/// collective); otherwise by the overrides of the table's model, then by its predictions. Errors: the forced
/// algorithm needs a domain, or does not support the shape. `shape` gives counts and world.
Result<Selection> choose(const CallFacts& facts, const Shape& shape, const Capabilities& capabilities,
                         ChoiceTable& table);

/// Why ranks cannot run `named`, an algorithm on memory where it lies, on the buffers of a call with `op`:
/// these lack what it `needs`, or each rank's is scaled first.
Status refuse_buffers(const Algorithm& named, ReduceOp op, std::string_view needs);

/// Bytes of a call as sizes are meant here: its count, or the mean of `counts` that all ranks know (those of
/// all_gather_v and reduce_scatter_v). 0 for the other v-collectives, whose counts no two ranks may share.
std::uint64_t call_bytes(const CallFacts& facts, std::span<const std::uint64_t> counts);

}  // namespace lockstep::internal
