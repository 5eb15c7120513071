// Group numbers: which of a process's groups at one meeting place the next one is. All ranks create their
// groups in the same order, so all count alike without asking, but for starts that failed, which the store
// knows of (next_group); what a group writes into the store carries its number, and no group meets what an
// earlier one left there.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::internal {

/// The latest group of this process that met at `place`, 0 before the first. Ranks that are threads get one
/// number: none of them can have met before all of them have asked. Thread-safe.
std::uint64_t groups_met(const std::string& place);
/// All ranks of that group were there.
void group_has_met(const std::string& place, std::uint64_t number);

}  // namespace lockstep::internal
