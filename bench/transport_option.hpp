// --transport of the benchmarks.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace lockstep::bench {

/// What it may say is what LOCKSTEP_TRANSPORTS may.
inline void add_transport(CLI::App& app, std::string& transport) {
  app.add_option("--transport", transport, "what carries the data")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "ucx", "verbs", "shm+tcp", "shm+verbs"}));
}

}  // namespace lockstep::bench
