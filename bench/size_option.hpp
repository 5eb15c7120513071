// A size on a command line: 8, 64K, 1G.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace lockstep::bench {

/// A minus sign would come out as a huge number.
inline CLI::Validator as_size() {
  const CLI::AsSizeValue size(false);
  return {[size](std::string& text) {
            return text.starts_with('-') ? "\"" + text + "\" is no size; write 8, 64K or 1G" : size(text);
          },
          "SIZE"};
}

}  // namespace lockstep::bench
