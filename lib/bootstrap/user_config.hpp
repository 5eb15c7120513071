// Where a user keeps settings: $XDG_CONFIG_HOME/lockstep, or ~/.config/lockstep.
#pragma once

#include <string>

namespace lockstep::internal {

/// Its path, which need not exist; empty where the environment names neither.
std::string user_config_directory();

}  // namespace lockstep::internal
