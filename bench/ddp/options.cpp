#include "bench/ddp/options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>

#include "bench/command_line.hpp"
#include "bench/size_option.hpp"
#include "bench/transport_option.hpp"
#include "lockstep/ddp.hpp"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

constexpr int kMaxRanks = 64;
constexpr int kMaxHosts = 2;  // One veth pair.
constexpr std::size_t kMaxRounds = 1001;

constexpr const char* kFooter =
    "With --hosts 2 the ranks run in two network namespaces joined by a veth pair that tc limits to --link.\n"
    "That needs root or unprivileged user namespaces, and iproute2. The namespaces have no names and end\n"
    "with the benchmark, however it ends.\n"
    "\n"
    "COMMAND runs on every rank instead, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and\n"
    "GLOO_SOCKET_IFNAME set, to measure something else over the same link.\n"
    "\n"
    "Examples:\n"
    "  lockstep-ddp-bench --ranks 2\n"
    "  lockstep-ddp-bench --ranks 2 --hosts 2 --link 1gbit --hook bf16 --json -";

/// "25M" is 25 million: parameters are counted as their authors do, not as bytes.
CLI::Validator as_count() {
  return CLI::AsNumberWithUnit(
      std::map<std::string, std::uint64_t>{{"k", 1'000}, {"m", 1'000'000}, {"g", 1'000'000'000}});
}

/// As tc writes rates.
std::string check_link(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const std::string_view rest(unit, static_cast<std::size_t>(end - unit));
  const bool good =
      error == std::errc() && number > 0 && (rest == "kbit" || rest == "mbit" || rest == "gbit");
  return good ? "" : "\"" + text + "\" is no rate; write 100mbit, 1gbit or 2.5gbit";
}

std::string check_hook(const std::string& name) {
  try {
    hook_by_name(name);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void check_together(const DdpOptions& options) {
  if (options.ranks % options.hosts != 0) {
    throw CLI::ValidationError("--ranks " + std::to_string(options.ranks) + " cannot be dealt evenly to " +
                               std::to_string(options.hosts) + " hosts");
  }
  if (options.zero >= 0 && options.hook != "none")
    throw CLI::ValidationError("--zero and --hook are measured one at a time");
  if (options.overlap_forward && (options.zero >= 0 || options.hook != "none"))
    throw CLI::ValidationError("--overlap-forward is measured without --zero and --hook");
}

void add_ranks(CLI::App& app, DdpOptions& options) {
  app.add_option("--ranks", options.ranks, "processes in all")->check(CLI::Range(1, kMaxRanks));
  app.add_option("--hosts", options.hosts, "1: this machine; 2: two network namespaces of it")
      ->check(CLI::Range(1, kMaxHosts));
  app.add_option("--link", options.link, "rate of the link between two hosts")->check(check_link);
}

void add_reducer(CLI::App& app, DdpOptions& options) {
  app.add_option("--hook", options.hook, "communication hook of the reducer")->check(check_hook);
  app.add_flag_callback(
      "--no-undo", [&options] { options.undo = false; },
      "keep no copies: gradients do not survive a step that fails");
  app.add_option("--check-first", options.check_first,
                 "whether buckets start in wait() only; not said: the reducer decides")
      ->check(CLI::IsMember({"yes", "no"}));
  app.add_flag(
         "--overlap-forward", options.overlap_forward,
         "measure steps whose forward waits for gradients layer by layer\nbeside steps that wait for all")
      ->default_str("");
  app.add_option("--zero", options.zero,
                 "measure AdamW with its state whole (0), sharded (1), or with the gradients (2)")
      ->default_str("")
      ->check(CLI::Range(0, 2));
}

void add_model(CLI::App& app, DdpOptions& options) {
  app.add_option("--parameters", options.parameters, "f32 parameters of the model, e.g. 25M")
      ->transform(as_count())
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{10'000'000'000}));
  app.add_option("--bucket", options.bucket_bytes, "cap of a bucket, e.g. 4M; 0: the reducer's default")
      ->transform(as_size());
  app.add_option("--batch", options.batch, "rows a step on each rank: sets the compute time")
      ->check(CLI::Range(1, 65536));
  app.add_option("--rounds", options.rounds, "rounds of each kind of step; medians are reported")
      ->check(CLI::Range(std::size_t{1}, kMaxRounds));
}

}  // namespace

std::optional<int> parse_ddp_options(int argc, char** argv, DdpOptions& options) {
  CLI::App app("Measures a data-parallel training step with and without gradient synchronisation.",
               "lockstep-ddp-bench");
  app.set_version_flag("--version", std::string("lockstep ") + lockstep_version());
  app.footer(kFooter);
  // The brackets around it are CLI11's.
  app.get_formatter()->label("OPTIONS", "OPTIONS] [-- COMMAND...");
  app.option_defaults()->always_capture_default();
  app.prefix_command();
  add_ranks(app, options);
  add_reducer(app, options);
  add_model(app, options);
  add_transport(app, options.transport);
  app.add_option("--json", options.json, "write the result to a file, or to standard output (-)");
  return parse_command_line(app, argc, argv, [&] {
    options.command = app.remaining();
    if (!options.command.empty() && options.command.front() == "--")
      options.command.erase(options.command.begin());
    if (!options.command.empty() && options.command.front().starts_with('-'))
      throw CLI::ExtrasError(options.command);
    if (app.count("--link") > 0 && options.hosts == 1)
      throw CLI::ValidationError("--link is the rate between two hosts: add --hosts 2");
    heed_transport_variable(app, options.transport);
    check_together(options);
  });
}

}  // namespace lockstep::bench
