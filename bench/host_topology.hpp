// What one host consists of: NUMA nodes, groups of cores that share a last-level cache, network interfaces.
#pragma once

#include <string>

namespace lockstep::bench {

/// A few lines about the host that this process runs on. Without hwloc one line says what is not known.
std::string describe_host();

}  // namespace lockstep::bench
