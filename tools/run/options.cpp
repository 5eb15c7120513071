#include "tools/run/options.hpp"

#include <CLI/CLI.hpp>
#include <initializer_list>

#include "lib/base/parse.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lockstep/lockstep.h"

namespace lockstep::run {
namespace {

constexpr const char* kAbout =
    "Runs PROGRAM as a group of ranks on this machine and ends with the first failing rank's exit code.\n"
    "Ranks find each other through LOCKSTEP_ variables; torchrun's variables are set as well.";

constexpr const char* kFooter =
    "Each line of output is prefixed with its rank. Signals are passed on to all ranks. When a rank fails,\n"
    "the others get SIGTERM at once and SIGKILL after the grace time. Standard input goes to rank 0 unless\n"
    "it is a terminal. When nobody reads standard output any more (lockstep-run ... | head), the ranks go\n"
    "on and what they write is lost.\n"
    "\n"
    "Examples:\n"
    "  lockstep-run -n 4 ./train --epochs 10\n"
    "  lockstep-run -n 4 --only-rank 0 --output-dir logs python3 train.py";

/// What would be taken and have no effect.
void refuse_beside(const CLI::App& app, const std::string& one, std::initializer_list<std::string> others) {
  for (const std::string& other : others) {
    if (app.count(one) > 0 && app.count(other) > 0)
      throw CLI::ValidationError(other, "it means nothing beside " + one + ": leave one of them out");
  }
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, RunOptions& options) {
  CLI::App app(kAbout, "lockstep-run -n RANKS");
  app.set_version_flag("--version", std::string("lockstep ") + lockstep_version());
  app.footer(kFooter);
  // The brackets around it are CLI11's.
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS...");
  app.prefix_command();
  std::string grace = "10s";
  int only_rank = -1;
  app.add_option("-n,--ranks", options.ranks, "How many ranks to run")
      ->check(CLI::Range(1, internal::kMaxWorld));
  app.add_option("--grace", grace, "Time between SIGTERM and SIGKILL: 500ms, 10s, 1m")->capture_default_str();
  app.add_option("--output-dir", options.output_directory,
                 "Also write each rank's output, as it is, to DIR/rank-R.log")
      ->type_name("DIR");
  app.add_option("--only-rank", only_rank, "Show the output of rank R alone")
      ->type_name("R")
      ->check(CLI::Range(0, internal::kMaxWorld - 1));
  app.add_flag("-q,--quiet", options.quiet,
               "Show nothing of ranks but the last lines of standard error of one that fails");
  app.add_flag("--dry-run", options.dry_run, "Print each rank's variables and run nothing");
  app.add_flag("--variables", options.variables, "Print every LOCKSTEP_ variable");
  try {
    app.parse(argc, argv);
    options.command = app.remaining();
    refuse_beside(app, "--quiet", {"--only-rank"});
    refuse_beside(app, "--variables",
                  {"--ranks", "--grace", "--output-dir", "--only-rank", "--quiet", "--dry-run"});
    if (options.variables && !options.command.empty())
      throw CLI::ValidationError("--variables", "it runs nothing: leave it out, or the program");
    if (options.variables) return std::nullopt;
    if (!options.command.empty() && options.command.front() == "--")
      options.command.erase(options.command.begin());
    if (options.ranks == 0) throw CLI::RequiredError("-n RANKS");
    if (options.command.empty() || options.command.front().empty()) throw CLI::RequiredError("PROGRAM");
    if (options.command.front().front() == '-')
      throw CLI::ExtrasError(std::vector<std::string>{options.command.front()});
    const auto milliseconds = internal::parse_milliseconds(grace);
    if (!milliseconds)
      throw CLI::ValidationError("--grace", "\"" + grace + "\" is no duration; write 500ms, 10s or 1m");
    options.grace = std::chrono::milliseconds(*milliseconds);
    if (only_rank >= options.ranks) {
      throw CLI::ValidationError("--only-rank", "there is no rank " + std::to_string(only_rank) + " among " +
                                                    std::to_string(options.ranks));
    }
    if (only_rank >= 0) options.only_rank = only_rank;
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
}

}  // namespace lockstep::run
