// Shared memory among the ranks of one host: links over rings, and a domain.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "transports/shm/shm_group.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// Sets up a group and gives this rank's transport, whose links are there as soon as they are asked for.
/// Collective: returns when every member has called it, or with an error that names a missing one after
/// `timeout` (0 = none). `id` is equal on all members, and no other group that one of them is setting up at
/// the time has it; `rank` is this rank's place in `members`. `ranks`: what the members are called in errors,
/// where the group is a part of a larger one (empty: their places), and `called`, in those of the set-up
/// (empty: the same). Nothing blocks later but the first resolve() of a peer's segment.
Result<std::unique_ptr<Transport>> make_shm_transport(
    std::uint64_t id, int rank, const std::vector<Member>& members, std::chrono::milliseconds timeout,
    Env& env, std::vector<int> ranks = {}, StillWanted still_wanted = {}, std::vector<int> called = {});

}  // namespace lockstep::internal
