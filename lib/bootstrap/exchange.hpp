// Exchange: every rank of a group tells all others one value through the store.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/bootstrap/still_wanted.hpp"

namespace lockstep::internal {

/// The store's key of a rank's value.
std::string exchange_key(const std::string& name, int rank);

/// Publishes `value` under `name` and returns those of all `ranks` (of the session), in their order. Blocks
/// until all have published, at most `timeout`, and not when that is not `still_wanted`, which is then who
/// tells of losses among them. Errors name a rank that is lost, or a missing one; `what` says for what was
/// waited: "the TCP addresses"; `called`, what the ranks are called (empty: as the session numbers them).
Result<std::vector<std::string>> exchange(Session& session, Env& env, const std::string& name,
                                          std::string value, std::span<const int> ranks,
                                          const std::string& what, std::chrono::milliseconds timeout,
                                          const StillWanted& still_wanted = {},
                                          std::span<const int> called = {});

}  // namespace lockstep::internal
