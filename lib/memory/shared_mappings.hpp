// Mappings that all ranks of this process share: a memory descriptor is mapped once, however many
// communicators and threads use it. Ranks that are threads of one process so meet at one address, where
// ThreadSanitizer sees them.
#pragma once

#include <cstddef>
#include <memory>

#include "lib/base/status.hpp"
#include "lib/memory/mapping.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// Unmapped when its last user lets go of it.
using SharedMapping = std::shared_ptr<const Mapping>;

/// The process's mapping of the memory behind `fd`, made with Mapping::map unless it exists. Descriptors of
/// one memory count as one however they came here. The first user decides how much of it is mapped.
/// Thread-safe.
Result<SharedMapping> map_shared(const Fd& fd, std::size_t bytes = Mapping::kAll,
                                 std::size_t populated = Mapping::kAll);

}  // namespace lockstep::internal
