// The library's hooks by name.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::internal {

/// What hook_by_name() takes; "none" comes first.
std::vector<std::string_view> hook_names();

}  // namespace lockstep::internal
