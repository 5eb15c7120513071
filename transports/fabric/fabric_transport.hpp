// FabricTransport: the links of one communicator over a fabric.
#pragma once

#include <memory>

#include "lib/base/env.hpp"
#include "transports/fabric/fabric.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// `fabric` knows the peers of a group of `size`. Does not communicate. `payloads` are alike on all ranks.
Result<std::unique_ptr<Transport>> make_fabric_transport(std::unique_ptr<Fabric> fabric, int size, Env& env,
                                                         PayloadMemory payloads = PayloadMemory::host);

}  // namespace lockstep::internal
