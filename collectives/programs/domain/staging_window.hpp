// How much of the staging area a call takes.
//
// A call lies in one half of every member's area, and the next one in the other. Calls that are small beside
// it take a window each of their half, one window after the other, so that a line comes round again only when
// the caches of the cores that read it have lost it. A store to a line that another core still holds waits
// until that core has given it up, one line after the other: 7 GB/s instead of 35.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

/// Elements (of `element` bytes) that a call of this shape, all facts but `staging`, may use of an area of
/// `area` bytes: half of the area, or as many as let it pass in no more blocks. Equal on all ranks.
std::uint64_t staging_window(const Shape& shape, std::size_t element, std::size_t area);

}  // namespace lockstep::internal
