#include "lib/bootstrap/user_config.hpp"

#include <cstdlib>

namespace lockstep::internal {

std::string user_config_directory() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && *config == '/') return std::string(config) + "/lockstep";
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.config/lockstep" : std::string();
}

}  // namespace lockstep::internal
