// Mappings that all ranks of this process share: memory of another process is mapped once however many
// communicators and threads use it, and memory of this process is used at the address it already has, so that
// ThreadSanitizer sees its threads meet there.
#pragma once

#include <memory>
#include <string>

#include "lib/base/status.hpp"
#include "lib/memory/mapping.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// Lives as long as somebody uses it.
using SharedMapping = std::shared_ptr<const Mapping>;

/// What is mapped under a name in this process, or nullptr. Names are the offer's: shared_name().
/// Thread-safe, like all functions here.
SharedMapping find_shared_mapping(const std::string& name);

/// Enters `mapping` under `name`; when another thread was faster, its mapping is returned and this one
/// dropped.
SharedMapping enter_shared_mapping(const std::string& name, Mapping mapping);

/// Process-wide name of what the descriptor service `service` offers under `key`.
std::string shared_name(const std::string& service, const std::string& key);

}  // namespace lockstep::internal
