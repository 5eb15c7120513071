// How the benchmarks read their command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>

namespace lockstep::bench {

/// Fills what the options of `app` stand for; `settle`, where given, then sees to what they mean together,
/// and throws a CLI::ParseError too. The exit status where there is nothing to run, after what was wrong, or
/// --help.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv,
                                             const std::function<void()>& settle = {}) {
  try {
    app.parse(argc, argv);
    if (settle) settle();
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return std::nullopt;
}

}  // namespace lockstep::bench
