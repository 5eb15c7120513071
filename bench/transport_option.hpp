// --transport of the benchmarks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace lockstep::bench {

/// What it may say is what LOCKSTEP_TRANSPORTS may.
void add_transport(CLI::App& app, std::string& transport);

}  // namespace lockstep::bench
