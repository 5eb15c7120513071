// Which transport carries a group.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "lib/bootstrap/still_wanted.hpp"
#include "transports/fabric/fabric.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// The transport of a group, as LOCKSTEP_TRANSPORTS says: by itself shared memory when all members are on one
/// host; over several hosts verbs or TCP, with shared memory between the ranks of a host. `timeout`: 0 =
/// none. `called`: what errors call the members, where the group is a part of another (empty: their places).
Result<std::unique_ptr<Transport>> make_transport(World& world, const EngineGroup& group,
                                                  const std::vector<int>& world_ranks,
                                                  std::chrono::milliseconds timeout,
                                                  const StillWanted& still_wanted = {},
                                                  const std::vector<int>& called = {});

/// All that LOCKSTEP_TRANSPORTS and InitOptions::transports may say, as "auto|shm".
std::string transport_choices();
/// Error `configuration` where `name` is none of them.
Status check_transports(std::string_view name);

/// Whether what carries this job's messages moves the memory of devices from and to where it lies.
bool moves_device_memory(World& world, PayloadMemory memory);
/// Links of a group for messages in such memory. Collective, as make_transport.
Result<std::unique_ptr<Transport>> make_device_links(World& world, const EngineGroup& group,
                                                     const std::vector<int>& world_ranks,
                                                     PayloadMemory memory, std::chrono::milliseconds timeout,
                                                     const StillWanted& still_wanted);

}  // namespace lockstep::internal
