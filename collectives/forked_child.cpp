#include "collectives/forked_child.hpp"

#include <utility>
#include <vector>

#include "lib/net/fd.hpp"

namespace lockstep::internal {
namespace {

/// Apart, so that the question before every call stays short.
[[gnu::cold, gnu::noinline]] void refuse() { forked_child_error().throw_if_error(); }

}  // namespace

void refuse_in_forked_child() {
  if (in_forked_child()) refuse();
}

void leave_to_parent(std::shared_ptr<void> thing) {
  static auto& kept = *new std::vector<std::shared_ptr<void>>;  // Outlives every handle.
  kept.push_back(std::move(thing));
}

}  // namespace lockstep::internal
