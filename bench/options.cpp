#include "bench/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "bench/command_line.hpp"
#include "bench/size_option.hpp"
#include "bench/transport_option.hpp"
#include "lockstep/lockstep.h"

namespace lockstep::bench {
namespace {

constexpr int kMaxRanks = 1024;    // more processes than any one machine runs to an end
constexpr int kLastRank = 16'383;  // of the largest group

// "all", or the values whose names are in `names`. Throws CLI::ValidationError with the known names.
template <typename T>
std::vector<T> values_by_name(const std::vector<std::string>& names, const std::vector<T>& known,
                              const char* what) {
  std::vector<T> values;
  for (const std::string& name : names) {
    if (name == "all") return known;
    const auto found = std::find_if(known.begin(), known.end(), [&](T v) { return name_of(v) == name; });
    if (found == known.end()) {
      std::string text = std::string("unknown ") + what + " '" + name + "'; known: all";
      for (T value : known) text += ", " + std::string(name_of(value));
      throw CLI::ValidationError(text);
    }
    values.push_back(*found);
  }
  return values;
}

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  types.reserve(kDataTypeCount);
  for (int i = 0; i < kDataTypeCount; ++i) types.push_back(static_cast<DataType>(i));
  return types;
}

// A user-defined operator has no name that a command line could give a meaning to.
std::vector<ReduceOp> all_redops() {
  std::vector<ReduceOp> ops;
  for (int i = 0; i < kReduceOpCount; ++i) {
    if (static_cast<ReduceOp>(i) != ReduceOp::user) ops.push_back(static_cast<ReduceOp>(i));
  }
  return ops;
}

std::vector<const Operation*> operations_by_name(const std::vector<std::string>& names) {
  std::vector<const Operation*> chosen;
  for (const std::string& name : names) {
    bool found = false;
    for (const Operation& operation : operations()) {
      if (name != operation.name && name != "all") continue;
      chosen.push_back(&operation);
      found = true;
    }
    if (found) continue;
    std::string text = "unknown operation '" + name + "'; known: all";
    for (const Operation& operation : operations()) text += ", " + std::string(operation.name);
    throw CLI::ValidationError(text);
  }
  return chosen;
}

void check_mode(const Options& options) {
  const int modes = options.list + options.programs + options.explain + options.calibrate + options.startup +
                    options.topology;
  if (modes > 1)
    throw CLI::ValidationError(
        "--list, --programs, --explain, --calibrate, --startup and --topology each have a run of their own: "
        "leave out all but one");
  const auto& asked = options.operations;
  const auto is_explained = [](const Operation* operation) { return operation->is_explained(); };
  if (options.explain && !asked.empty() && std::none_of(asked.begin(), asked.end(), is_explained))
    throw CLI::ValidationError(
        "--explain compares algorithms by the size of the data: leave it out, or name other collectives than "
        "barrier");
}

bool is_for_calibration(const CLI::Option& option) {
  return option.check_name("--calibrate") || option.check_name("-n") || option.check_name("--json");
}

// What would be taken and have no effect.
void check_unheeded(const CLI::App& app, const Options& options) {
  if (options.device.empty() && (!options.libraries.empty() || options.apart || options.graph))
    throw CLI::ValidationError(
        "--lib, --lib-apart and --graph are for collectives on devices: add --device cuda, or leave it out");
  if (options.apart && options.libraries.empty())
    throw CLI::ValidationError("--lib-apart is about what --lib names: add that, or leave it out");
  const bool shows = options.list || options.programs || options.explain || options.topology;
  if (!options.device.empty() && (shows || options.calibrate || options.startup))
    throw CLI::ValidationError(
        "--device measures collectives: leave it out beside --list, --programs, --explain, --calibrate, "
        "--startup and --topology, which are about host memory");
  if (!options.device.empty() && !options.algorithm.empty())
    throw CLI::ValidationError("--algorithm is heeded on host memory only: leave it out beside --device");
  if (!options.json.empty() && shows)
    throw CLI::ValidationError("--list, --programs, --explain and --topology print text: leave --json out");
  const auto given = app.get_options(
      [](const CLI::Option* option) { return option->count() > 0 && !is_for_calibration(*option); });
  if (options.calibrate && !given.empty())
    throw CLI::ValidationError(
        "--calibrate measures all operations with 2 and 4 ranks over shared memory and TCP: leave all but -n "
        "and --json out");
}

void check_together(const Options& options) {
  if (options.min_bytes > options.max_bytes) throw CLI::ValidationError("-b is larger than -e");
  if (options.ranks > 0 && options.threads > 0) {
    throw CLI::ValidationError("--ranks starts processes and --threads starts threads: give one of them");
  }
  const int world = std::max(options.ranks, options.threads);
  if (world > 0 && options.root >= world) {
    throw CLI::ValidationError("root " + std::to_string(options.root) + " is not one of " +
                               std::to_string(world) + " ranks");
  }
}

/// What is given as text or number, and means something else.
struct Spelled {
  std::vector<std::string> names, types{"f32"}, redops{"sum"};
  int check = 1;
};

void add_measuring(CLI::App& app, Options& options, Spelled& spelled) {
  const auto size = as_size();
  app.add_option("operation", spelled.names, "what to measure; several, or all")->default_str("");
  app.add_option("-b,--minbytes", options.min_bytes,
                 "smallest size, e.g. 8, 64K; as in nccl-tests every size is rounded\n"
                 "down to whole elements, equally many of each rank, be it to none")
      ->transform(size);
  app.add_option("-e,--maxbytes", options.max_bytes, "largest size, e.g. 64M, 1G")->transform(size);
  app.add_option("-f,--stepfactor", options.factor, "from one size to the next")
      ->check(CLI::Range(1.01, 1e9));
  app.add_option("-n,--iters", options.iterations, "timed iterations, 0: as many as fit 0.3 s")
      ->check(CLI::Range(0, kMaxIterations));
  app.add_option("-w,--warmup_iters", options.warmup, "iterations before")->check(CLI::Range(0, 1000));
  app.add_option("-c,--check", spelled.check,
                 "1: compare samples of every timed iteration and all of the last\n"
                 "(with --device all of the first and last); 0: nothing")
      ->check(CLI::Range(0, 1));
  app.add_option("-d,--datatype", spelled.types, "element types, or all")->delimiter(',');
  app.add_option("-o,--op", spelled.redops, "reduction operators, or all")->delimiter(',');
  app.add_option("-r,--root", options.root, "root")->check(CLI::Range(0, kLastRank));
}

void add_ranks(CLI::App& app, Options& options) {
  app.add_option("--ranks", options.ranks, "start that many processes; 0: a launcher has started the ranks")
      ->check(CLI::Range(0, kMaxRanks));
  app.add_option("--threads", options.threads, "start the ranks as threads of one process")
      ->check(CLI::Range(0, kMaxRanks));
  add_transport(app, options.transport);
  app.add_option("--algorithm", options.algorithm, "by name, see --list; empty: the library chooses");
  app.add_flag("--registered", options.registered, "buffers from lockstep::allocate");
}

void add_device(CLI::App& app, Options& options) {
  app.add_option(
         "--device", options.device,
         "collectives on GPUs (cuda), or on the host backend,\nwhich shows that they are right (host)")
      ->check(CLI::IsMember({"cuda", "host"}));
  app.add_flag("--graph", options.graph, "replay each call from a graph (with --device; docs/gpu.md)");
  app.add_option("--lib", options.libraries,
                 "a library with NCCL's interface, measured beside (with --device),\n"
                 "by its path or as the loader finds it")
      ->default_str("")
      ->check([](const std::string& file) {
        return file.find('/') == std::string::npos ? std::string() : CLI::ExistingFile(file);
      });
  app.add_flag("--lib-apart", options.apart,
               "tell that library that every rank has a host of its own: NCCL before 2.30\n"
               "refuses several ranks on one GPU, and so talks over sockets");
}

void add_modes(CLI::App& app, Options& options) {
  app.add_option("--json", options.json, "write the results to a file, or to standard output (-)");
  app.add_flag("--list", options.list, "list the algorithms of every collective");
  app.add_flag("--explain", options.explain,
               "predicted and measured time of every algorithm, and the choice");
  app.add_flag("--programs", options.programs, "print the programs that would run instead of running them");
  app.add_flag("--calibrate", options.calibrate,
               "measure this machine and write the tuning file by which algorithms are chosen");
  app.add_flag("--startup", options.startup,
               "time, memory, descriptors and threads that starting the ranks takes");
  app.add_flag("--topology", options.topology,
               "list hosts, NUMA nodes, caches, cores and interfaces, and what carries the links");
}

constexpr const char* kFooter =
    "Examples:\n"
    "  lockstep-bench all_reduce --ranks 4 -b 8 -e 64M -f 8\n"
    "  lockstep-bench all_reduce broadcast --ranks 2 --registered --json result.json\n"
    "  lockstep-bench all_reduce --explain --ranks 4 --transport tcp\n"
    "  lockstep-bench all_reduce --device cuda --ranks 2 --lib libnccl.so.2";

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  Spelled spelled;
  CLI::App app("Measures collectives as nccl-tests does. Time: median over iterations of the slowest rank.",
               "lockstep-bench");
  app.set_version_flag("--version", std::string("lockstep ") + lockstep_version());
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  add_measuring(app, options, spelled);
  add_ranks(app, options);
  add_device(app, options);
  add_modes(app, options);
  return parse_command_line(app, argc, argv, [&] {
    options.check = spelled.check != 0;
    options.operations = operations_by_name(spelled.names);
    options.types = values_by_name(spelled.types, all_types(), "type");
    options.redops = values_by_name(spelled.redops, all_redops(), "operator");
    check_mode(options);
    check_unheeded(app, options);
    heed_transport_variable(app, options.transport);
    check_together(options);
    if (options.operations.empty() && !options.list && !options.calibrate && !options.topology &&
        !options.startup)
      throw CLI::RequiredError("operation");
  });
}

std::vector<std::uint64_t> sweep(const Options& options) {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    sizes.push_back(bytes);
    const auto next = static_cast<std::uint64_t>(std::llround(static_cast<double>(bytes) * options.factor));
    bytes = std::max(next, bytes + 1);
  }
  return sizes;
}

}  // namespace lockstep::bench
