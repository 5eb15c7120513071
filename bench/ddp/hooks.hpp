// The communication hooks that the benchmark knows by name.
#pragma once

#include <memory>
#include <string>

#include "lockstep/ddp.hpp"

namespace lockstep::bench {

bool is_hook(const std::string& name);
/// For messages: "none, bf16".
std::string hook_names();
/// Null for "none".
std::shared_ptr<CommunicationHook> make_hook_by_name(const std::string& name);

}  // namespace lockstep::bench
