#include "lib/base/log.hpp"

#include <cstdio>

#include "lib/base/config.hpp"

namespace lockstep::internal {

/// In one write: ranks often share their standard error.
static void write_line(const std::string& text) { std::fputs(("lockstep: " + text + "\n").c_str(), stderr); }

void warn(const std::string& text) {
  if (config_text("LOCKSTEP_LOG") != "off") write_line(text);
}

void inform(const std::string& text) {
  if (config_text("LOCKSTEP_LOG") == "info") write_line(text);
}

}  // namespace lockstep::internal
