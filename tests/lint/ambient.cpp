#include "tests/lint/ambient.hpp"

#include <algorithm>

namespace lockstep::internal::lint {
namespace {

struct Rule {
  std::vector<std::string_view> words;
  std::vector<std::string_view> allowed;  ///< Prefixes of paths.
  std::string_view instead;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {{"steady_clock", "system_clock", "high_resolution_clock", "clock_gettime", "gettimeofday",
        "timespec_get", "clock_nanosleep", "nanosleep", "usleep", "sleep_until"},
       {"lib/base/env."},
       "take time from Env"},
      // The engine and the transports are stepped; only start-up may wait between two tries, a stream of the
      // host backend for a word, the worker of a device for the caller's stream, its own, and what all ranks
      // are told, and set-up for a probe of it.
      {{"sleep_for"},
       {"lib/base/env.", "lib/bootstrap/", "lib/device/host/host_kernels.cpp",
        "collectives/device/device_end.cpp", "collectives/device/hosts/across_hosts.cpp",
        "collectives/device/patience.cpp", "collectives/device/stream_gate.cpp",
        "collectives/device/stream_watch.cpp", "collectives/device/worker_side.cpp",
        "collectives/device/write_guard.cpp"},
       "ask Env::wake_at to be stepped again"},
      {{"random_device", "rand", "srand", "random_r", "drand48", "getrandom", "getentropy"},
       {"lib/base/env."},
       "take randomness from Env"},
      // The driver's variables are not ours, nor are UCX's.
      {{"getenv", "secure_getenv", "environ"},
       {"lib/base/config.cpp", "lib/bootstrap/", "lib/device/driver_variables.cpp",
        "transports/ucx/ucx_options.cpp"},
       "declare the variable in lib/base/config.cpp"},
  };
  return all;
}

bool is_allowed(const Rule& rule, std::string_view path) {
  return std::any_of(rule.allowed.begin(), rule.allowed.end(),
                     [path](std::string_view prefix) { return path.starts_with(prefix); });
}

}  // namespace

std::vector<std::string> ambient_findings(const std::vector<SourceFile>& files) {
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    for (const Rule& rule : rules()) {
      if (is_allowed(rule, file.path)) continue;
      for (std::size_t i = 0; i < file.lines.size(); ++i) {
        for (const std::string_view word : rule.words) {
          if (find_word(file.lines[i].code, word) == std::string::npos) continue;
          findings.push_back(location(file, i) + std::string(word) +
                             " is not allowed here: " + std::string(rule.instead));
        }
      }
    }
  }
  return findings;
}

}  // namespace lockstep::internal::lint
