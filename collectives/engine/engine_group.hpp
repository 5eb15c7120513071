// EngineGroup: who the ranks of a communicator are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/bootstrap/member.hpp"

namespace lockstep::internal {

/// Index of `members` = rank in the communicator.
struct EngineGroup {
  std::uint64_t id = 0;
  std::string name = "world";
  int rank = 0;
  std::vector<Member> members;
  int size() const { return static_cast<int>(members.size()); }
  /// "rank 3 (host-2, pid 4711)"
  std::string who(int of_rank) const { return who_is(of_rank, members[static_cast<std::size_t>(of_rank)]); }
};

}  // namespace lockstep::internal
