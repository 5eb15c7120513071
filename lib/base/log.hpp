// What the library says of itself on standard error: a line each, as far as LOCKSTEP_LOG lets it.
#pragma once

#include <string>

namespace lockstep::internal {

/// That something is amiss, or long in coming. Thread-safe; `text` is without "lockstep: " and newline.
void warn(const std::string& text);
/// What was chosen; for who asked with LOCKSTEP_LOG=info.
void inform(const std::string& text);

}  // namespace lockstep::internal
