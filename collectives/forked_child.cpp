#include "collectives/forked_child.hpp"

#include <utility>
#include <vector>

#include "lib/net/fd.hpp"
#include "lockstep/error.hpp"

namespace lockstep::internal {

void refuse_in_forked_child() {
  if (!in_forked_child()) return;
  throw Error(
      ErrorCode::not_supported,
      "lockstep is used in a child forked after its initialisation: the child has no connections; call exec "
      "in it, or fork before lockstep is first used");
}

void leave_to_parent(std::shared_ptr<void> thing) {
  static auto& kept = *new std::vector<std::shared_ptr<void>>;  // Outlives every handle.
  kept.push_back(std::move(thing));
}

}  // namespace lockstep::internal
