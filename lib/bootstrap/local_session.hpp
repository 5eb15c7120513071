// Sessions of ranks that are threads of one process: made together, without meeting.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/bootstrap/session.hpp"

namespace lockstep::internal {

/// `n` sessions, element r for rank r. They share a store and a random secret. None can die without the
/// process: lost are those that say so, after a failure. `source` as in Session::source(); `notice` is rank
/// 0's.
std::vector<std::unique_ptr<Session>> make_local_sessions(int n,
                                                          std::string source = "threads of one process",
                                                          std::string notice = {});

}  // namespace lockstep::internal
