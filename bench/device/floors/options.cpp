#include "bench/device/floors/options.hpp"

#include <CLI/CLI.hpp>

#include "bench/command_line.hpp"
#include "bench/device/floors/rates.hpp"
#include "bench/size_option.hpp"

namespace lockstep::bench {
namespace {

constexpr int kMaxRanks = 1024;  // More processes than any one device has room for.

CLI::Validator at_least_what_is_measured() {
  return {[](const std::string& text) {
            return std::stoull(text) >= kLeastBytes ? "" : "rates are measured from 1M on; write 16M or 1G";
          },
          ""};
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, FloorsOptions& options) {
  CLI::App app(
      "What a device gives at best, and what processes that share one cost each other; JSON on standard "
      "output.",
      "lockstep-device-floors");
  app.add_option("MOST_BYTES", options.most_bytes, "of the largest buffers: 16M, 1G")
      ->required()
      ->transform(as_size())
      ->check(at_least_what_is_measured());
  app.add_option("RANKS", options.ranks, "processes that pass a word round: 2 4 8")
      ->check(CLI::Range(1, kMaxRanks));
  return parse_command_line(app, argc, argv);
}

}  // namespace lockstep::bench
