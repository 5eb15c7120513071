// MixedTransport: links chosen per pair of ranks: shared memory to those of the own host, a network to all
// others.
#pragma once

#include <memory>
#include <vector>

#include "transports/transport.hpp"

namespace lockstep::internal {

/// `near` connects the ranks of this host, of which number i has rank near_ranks[i] in the group and calls
/// itself that in errors; `far` connects all `size` ranks. The group has no domain, but peers on this host
/// ring the doorbell of near's.
std::unique_ptr<Transport> make_mixed_transport(std::unique_ptr<Transport> near,
                                                const std::vector<int>& near_ranks,
                                                std::unique_ptr<Transport> far, int size);

}  // namespace lockstep::internal
