#include "bench/calibrate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <stdexcept>

#include "bench/calibrate_probes.hpp"
#include "bench/calibrate_samples.hpp"
#include "bench/json_file.hpp"
#include "collectives/select/model_source.hpp"
#include "lib/base/core_set.hpp"

namespace lockstep::bench {
namespace {

using internal::CostModel;
using internal::LinkClass;
using internal::Load;
using internal::Sample;

constexpr int kWorlds[] = {2, 4};

// Where a message's bytes come from: a core's own cache, its share of the common one, memory.
void set_regimes(CostModel& model, int cores) {
  const auto bytes_of = [](int name, std::uint64_t otherwise) {
    const long bytes = sysconf(name);
    return bytes > 0 ? static_cast<std::uint64_t>(bytes) : otherwise;
  };
  const std::uint64_t own = bytes_of(_SC_LEVEL2_CACHE_SIZE, 512 << 10) / 4;
  // A virtual machine may name the last cache of the whole host.
  constexpr std::uint64_t kMostShare = 4 << 20;
  const std::uint64_t share =
      bytes_of(_SC_LEVEL3_CACHE_SIZE, 8 << 20) / (2 * static_cast<std::uint64_t>(std::max(cores, 1)));
  for (auto& loads : model.links) {
    for (internal::LinkCost& cost : loads) {
      cost.regimes[0].up_to = own;
      cost.regimes[1].up_to = std::clamp(share, 2 * own, std::max(2 * own, kMostShare));
    }
  }
}

std::vector<Sample> of_class(const std::vector<Sample>& samples, LinkClass link, Load load) {
  std::vector<Sample> chosen;
  for (const Sample& sample : samples) {
    if (class_of(sample.algorithm->medium) == link && sample.ground.load == load) chosen.push_back(sample);
  }
  return chosen;
}

// The factor that an algorithm's measured times have over the predicted ones, in the mean over the worlds.
void add_corrections(CostModel& model, const std::vector<Sample>& samples) {
  struct Sum {
    double logs = 0;
    int count = 0;
  };
  std::map<std::tuple<Load, LinkClass, Collective, std::string>, std::map<int, Sum>> sums;
  for (const Sample& sample : samples) {
    const LinkClass link = class_of(sample.algorithm->medium);
    const double expected = predicted(sample, model.cost(link, sample.ground.load));
    Sum& sum = sums[{sample.ground.load, link, sample.algorithm->collective,
                     std::string(sample.algorithm->name)}][internal::log2_class(sample.bytes)];
    sum.logs += std::log(sample.seconds / expected);
    ++sum.count;
  }
  for (const auto& [key, by_size] : sums) {
    for (const auto& [log2, sum] : by_size) model.corrections[key].add(log2, std::exp(sum.logs / sum.count));
  }
}

CostModel measure_machine(int rounds, std::ostream& out) {
  CostModel model = *internal::builtin_model();
  const auto cores = static_cast<int>(internal::allowed_cores().count());
  model.fingerprint = internal::this_machine();
  model.fingerprint->cores = cores;  // Those that take part in what follows.
  model.calibrated_ranks = *std::max_element(std::begin(kWorlds), std::end(kWorlds));
  model.corrections.clear();
  set_regimes(model, cores);
  model.spin_microseconds = worthwhile_spin();
  model.non_temporal_bytes = non_temporal_from();
  model.tcp_sockets = sample_tcp_sockets();
  std::vector<Sample> samples;
  for (const int ranks : kWorlds) {
    const Load load = ranks > cores ? Load::crowded : Load::spare;
    model.cost(LinkClass::inline_line, load).sync =
        internal::exact_cost(sample_inline({ranks, "shm", cores, rounds}));
    for (const char* transport : {"shm", "tcp"}) {
      out << "# measuring " << ranks << " ranks, " << transport << std::endl;
      const auto more = sample_world({ranks, transport, cores, rounds});
      samples.insert(samples.end(), more.begin(), more.end());
    }
  }
  // Crowded first: what a message costs at its ends, in time of a core, shows where ranks take turns; two
  // ranks with a core each cannot tell it from the message's way, and keep it.
  for (const Load load : {Load::crowded, Load::spare}) {
    for (const LinkClass link : {LinkClass::staged, LinkClass::registered, LinkClass::tcp}) {
      model.cost(link, load) = fit_link_cost(model.cost(link, load), of_class(samples, link, load));
      if (load == Load::crowded) {
        const double turns = static_cast<double>(model.calibrated_ranks) / cores;
        model.cost(link, Load::spare).step = model.cost(link, Load::crowded).step / std::max(turns, 1.0);
      }
    }
  }
  add_corrections(model, samples);
  return model;
}

void print_costs(const CostModel& model, std::ostream& out) {
  out << "# costs: microseconds; GB/s by regime (message, reduce, copy)\n"
      << "#      class crowded   call   step  alpha   sync\n"
      << std::fixed;
  for (const Load load : {Load::spare, Load::crowded}) {
    for (const LinkClass link : {LinkClass::staged, LinkClass::registered, LinkClass::tcp}) {
      const internal::LinkCost& cost = model.cost(link, load);
      out << std::setw(12) << name_of(link) << std::setw(8) << (load == Load::crowded ? "yes" : "no")
          << std::setprecision(2);
      for (const double seconds : {cost.call, cost.step, cost.alpha, cost.sync})
        out << std::setw(7) << seconds * 1e6;
      out << std::setprecision(1);
      for (const auto& regime : cost.regimes) {
        out << "  |";
        for (const double each : {regime.beta, regime.gamma, regime.copy})
          out << std::setw(7) << (each > 0 ? 1e-9 / each : 0);
      }
      out << "\n";
    }
  }
  out << "# stores past the caches from " << model.non_temporal_bytes << " bytes on, spin "
      << model.spin_microseconds << " us, " << model.tcp_sockets << " TCP connections per peer\n";
}

// Where the result goes, once it is certain that it can.
std::string find_place(const Options& options) {
  const std::string path = options.json.empty() ? internal::default_model_path() : options.json;
  if (path.empty()) throw std::runtime_error("no place for the result: say --json FILE");
  if (path == "-") return path;
  const std::filesystem::path target(path);
  std::error_code ignored;
  if (target.has_parent_path()) std::filesystem::create_directories(target.parent_path(), ignored);
  check_replace(path);
  return path;
}

}  // namespace

int calibrate(const Options& options, std::ostream& out) {
  const std::string path = find_place(options);
  std::ostream& report = path == "-" ? std::cerr : out;
  // What is measured must not depend on what was measured before.
  setenv("LOCKSTEP_TUNING", "built-in", 1);
  unsetenv("LOCKSTEP_ALGORITHMS");
  const auto start = std::chrono::steady_clock::now();
  const CostModel model = measure_machine(options.iterations, report);
  const std::string text = to_json(model);
  print_costs(model, report);
  if (path == "-") {
    out << text;
  } else {
    replace_file(path, text);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  report << "# wrote " << (path == "-" ? "standard output" : path) << " after " << std::setprecision(1)
         << took.count() << " s\n";
  return 0;
}

}  // namespace lockstep::bench
