// EngineGroup: who the ranks of a communicator are.
#pragma once

#include <cstdint>
#include <span>
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
  std::vector<int> called;  ///< What errors call the members; empty: by their ranks.
  int size() const { return static_cast<int>(members.size()); }
  /// "rank 3 (host-2, pid 4711)"
  std::string who(int of_rank) const {
    const auto member = static_cast<std::size_t>(of_rank);
    return who_is(called.empty() ? of_rank : called[member], members[member]);
  }
  /// All of `ranks`, or of many the first.
  std::string who(std::span<const int> ranks) const {
    std::string text;
    for (const int one : ranks) {
      text += (text.empty() ? "" : ", ") + who(one);
      if (text.size() > 400) return text + ", ...";
    }
    return text;
  }
};

}  // namespace lockstep::internal
