// Set-up of a group in shared memory: every member makes its segment, offers it, and maps everybody's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/bootstrap/still_wanted.hpp"
#include "lib/memory/shared_mappings.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// Who forms a group. All members on one host, of one user.
struct ShmGroup {
  std::uint64_t id = 0;          ///< Equal on all members; of no other group that any of them is setting up.
  int rank = -1;                 ///< This rank's place in `members`.
  std::vector<Member> members;   ///< In the group's order.
  Nanos deadline = kForever;     ///< On env's clock: when set-up gives up.
  std::vector<int> called = {};  ///< What members are called in errors of the set-up; empty: their places.
  StillWanted still_wanted = {};
  int name_of(int member) const { return called.empty() ? member : called[static_cast<std::size_t>(member)]; }
};

/// A member as seen from this process.
struct Attachment {
  SharedMapping segment;           ///< See shm_layout.hpp.
  std::shared_ptr<const Fd> bell;  ///< Its eventfd.
};

/// Blocks until every member has mapped every segment (so that a member may leave right after), or the
/// deadline. Errors name the member that is missing: peer_lost when its process is gone, timeout when it does
/// not come.
Result<std::vector<Attachment>> attach_group(const ShmGroup& group, Env& env);

}  // namespace lockstep::internal
