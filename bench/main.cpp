// lockstep-bench: measures the collectives in the terms of nccl-tests. See --help.
#include <iostream>

#include "bench/calibrate.hpp"
#include "bench/choice.hpp"
#include "bench/device/run.hpp"
#include "bench/explain.hpp"
#include "bench/json_file.hpp"
#include "bench/launch.hpp"
#include "bench/measure.hpp"
#include "bench/programs.hpp"
#include "bench/report.hpp"
#include "bench/startup.hpp"
#include "bench/topology.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::bench;

constexpr int kWrongData = 3;  // exit status when the data were not what they must be

int rank_main(const Options& options, Communicator& communicator, Board& board) {
  if (options.topology) {
    print_topology(communicator, std::cout);
    return 0;
  }
  if (!options.device.empty()) return run_on_device(options, communicator, board) == 0 ? 0 : kWrongData;
  if (options.explain) {
    explain(communicator, board, options, std::cout);
    return 0;
  }
  // JSON on standard output leaves no room for a table there.
  std::ostream* table = options.json == "-" ? nullptr : &std::cout;
  Report report(options, ground_of(communicator, options), table);
  const bool prints = communicator.rank() == 0;
  std::uint64_t wrong = 0;
  measure(communicator, board, options, [&](const Row& row) {
    for (const auto& timing : {row.out_of_place, row.in_place}) wrong += timing ? timing->wrong : 0;
    if (prints) report.add(row);
  });
  if (prints) report.finish();
  return wrong == 0 ? 0 : kWrongData;
}

int run(const Options& options) {
  if (options.list) return list_algorithms(std::cout);
  if (options.programs) return print_programs(options, std::cout);
  if (options.calibrate) return calibrate(options, std::cout);
  check_json(options.json);
  if (options.startup) return measure_startup(options, std::cout);
  if (!options.device.empty()) choose_backend(options);
  return launch(options, [&](Communicator& communicator, Board& board) {
    const int status = rank_main(options, communicator, board);
    if (communicator.rank() == 0) check_printed();
    return status;
  });
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse_options(argc, argv, options)) return *status;
  try {
    const int status = run(options);
    check_printed();
    return status;
  } catch (const std::exception& error) {
    std::cerr << "lockstep-bench: " << error.what() << "\n";
    return 1;
  }
}
