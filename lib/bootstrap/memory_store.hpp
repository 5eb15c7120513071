// Store among threads of one process: "memory://name".
#pragma once

#include <memory>
#include <string>

#include "lib/bootstrap/store.hpp"

namespace lockstep::internal {

/// The store called `name`; all that are open at one time under one name share their keys, which are gone
/// with the last of them.
std::unique_ptr<Store> open_memory_store(const std::string& name);

}  // namespace lockstep::internal
