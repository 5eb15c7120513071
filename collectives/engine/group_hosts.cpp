#include "collectives/engine/group_hosts.hpp"

#include <algorithm>
#include <string_view>

namespace lockstep::internal {

std::vector<int> hosts_of(const EngineGroup& group) {
  std::vector<std::string_view> seen;
  std::vector<int> hosts;
  for (const Member& member : group.members) {
    auto found = std::find(seen.begin(), seen.end(), member.host_id);
    if (found == seen.end()) found = seen.insert(seen.end(), member.host_id);
    hosts.push_back(static_cast<int>(found - seen.begin()));
  }
  if (seen.size() == 1) hosts.clear();
  return hosts;
}

}  // namespace lockstep::internal
