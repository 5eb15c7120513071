// --transport of the benchmarks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace lockstep::bench {

/// What it may say is what LOCKSTEP_TRANSPORTS may.
void add_transport(CLI::App& app, std::string& transport);
/// Once it is parsed: where the option was not given, LOCKSTEP_TRANSPORTS counts, as everywhere.
void heed_transport_variable(const CLI::App& app, std::string& transport);

}  // namespace lockstep::bench
