// What a forked child may do with the handles that it got from its parent: nothing.
#pragma once

#include <memory>

namespace lockstep::internal {

/// Throws Error(not_supported) in a child forked after the library was in use: locks, threads and shared
/// memory are its parent's.
void refuse_in_forked_child();

/// Keeps `thing` to the end of this process. Taking it down in a forked child would tell the peers, through
/// memory that parent and child share, that the parent has left.
void leave_to_parent(std::shared_ptr<void> thing);

}  // namespace lockstep::internal
