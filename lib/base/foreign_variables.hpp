// Variables of other programs that say what one of ours would. Read in config.cpp, as all of the environment
// is.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep::internal {

struct ForeignText {
  std::string variable, value;
};

/// The text of a variable of the table (lib/base/config.hpp); where it is not set, that of the first of
/// `others` that is. {name, its default} when none is set.
ForeignText config_text_or(std::string_view name, std::initializer_list<const char*> others);

}  // namespace lockstep::internal
