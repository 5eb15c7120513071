// A group whose ranks are made up, for engines that a test runs in this process.
#pragma once

#include <string>
#include <utility>

#include "collectives/engine/engine.hpp"

namespace lockstep::internal::testing {

/// All of this process, on one host.
inline EngineGroup made_up_group(int rank, int world, const std::string& host) {
  EngineGroup group;
  group.id = 1;
  group.rank = rank;
  for (int r = 0; r < world; ++r) {
    Member member;
    member.rank = r;
    member.host_id = member.host_name = host;
    member.pid = 1000 + r;
    member.process = process_token();
    group.members.push_back(std::move(member));
  }
  return group;
}

}  // namespace lockstep::internal::testing
