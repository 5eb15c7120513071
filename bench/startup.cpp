#include "bench/startup.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "bench/json_file.hpp"
#include "bench/launch.hpp"
#include "bench/process_memory.hpp"
#include "lib/net/descriptor_limit.hpp"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;  // One clock for all processes of a machine.

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::uint64_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::uint64_t>(std::distance(begin(all), end(all)));
}

struct Startup {
  double start_ms = 0, barrier_ms = 0, all_reduce_ms = 0, again_ms = 0;  ///< Of the slowest rank.
  std::uint64_t memory_kib = 0, descriptors = 0, threads = 0;            ///< Of all ranks together.
};

/// Milliseconds that `act` takes on the slowest rank. All begin together.
template <class Act>
double timed(Board& board, const Act& act) {
  board.barrier();
  const auto start = Clock::now();
  act();
  double taken = milliseconds_since(start);
  board.max({&taken, 1});
  return taken;
}

void all_reduce(Communicator& communicator) {
  std::array<std::int64_t, 16> values{};
  values.fill(communicator.rank() + 1);
  communicator.all_reduce(values.data(), values.data(), values.size(), DataType::i64, ReduceOp::sum);
  const std::int64_t ranks = communicator.size();
  if (std::any_of(values.begin(), values.end(), [&](auto v) { return v != ranks * (ranks + 1) / 2; }))
    throw std::runtime_error("the first all_reduce has a wrong result");
}

/// One rank's part. Threads share one process, which rank 0 counts for all.
Startup take_part(Communicator& communicator, Board& board, Clock::time_point launched, bool counts) {
  Startup startup;
  startup.start_ms = milliseconds_since(launched);
  board.max({&startup.start_ms, 1});
  startup.barrier_ms = timed(board, [&] { communicator.barrier(); });
  startup.all_reduce_ms = timed(board, [&] { all_reduce(communicator); });
  startup.again_ms = timed(board, [&] { all_reduce(communicator); });
  startup.memory_kib = board.sum(counts ? proportional_bytes() / 1024 : 0);
  startup.descriptors = board.sum(counts ? entries_of("/proc/self/fd") : 0);
  startup.threads = board.sum(counts ? entries_of("/proc/self/task") : 0);
  return startup;
}

nlohmann::ordered_json row_of(const Startup& startup, const Communicator& communicator,
                              const Options& options) {
  const auto share = [&](std::uint64_t total) {
    return static_cast<double>(total) / static_cast<double>(communicator.size());
  };
  return {{"ranks", communicator.size()},
          {"as", options.threads > 0 ? "threads" : "processes"},
          {"transport", options.transport},
          {"start_ms", startup.start_ms},
          {"barrier_ms", startup.barrier_ms},
          {"all_reduce_ms", startup.all_reduce_ms},
          {"again_ms", startup.again_ms},
          {"memory_kib_per_rank", share(startup.memory_kib)},
          {"descriptors_per_rank", share(startup.descriptors)},
          {"threads_per_rank", share(startup.threads)}};
}

void print(const nlohmann::ordered_json& row, std::ostream& out) {
  char line[256];
  std::snprintf(
      line, sizeof line,
      "%d %s over %s: start %.0f ms, barrier %.1f ms, all_reduce %.1f ms, again %.1f ms; a rank has %.0f "
      "KiB, %.1f descriptors, %.1f threads\n",
      row["ranks"].get<int>(), row["as"].get<std::string>().c_str(),
      row["transport"].get<std::string>().c_str(), row["start_ms"].get<double>(),
      row["barrier_ms"].get<double>(), row["all_reduce_ms"].get<double>(), row["again_ms"].get<double>(),
      row["memory_kib_per_rank"].get<double>(), row["descriptors_per_rank"].get<double>(),
      row["threads_per_rank"].get<double>());
  out << line;
}

void report(const nlohmann::ordered_json& row, const Options& options, std::ostream& out) {
  if (options.json != "-") print(row, out);
  check_printed();
  write_json(options.json, row, -1);
}

}  // namespace

int measure_startup(const Options& options, std::ostream& out) {
  // A thousand ranks in one process need more than shells allow by default.
  internal::raise_descriptor_limit();
  const auto launched = Clock::now();
  return launch(options, [&](Communicator& communicator, Board& board) {
    const bool counts = options.threads == 0 || communicator.rank() == 0;
    const Startup startup = take_part(communicator, board, launched, counts);
    if (communicator.rank() == 0) report(row_of(startup, communicator, options), options, out);
    return 0;
  });
}

}  // namespace lockstep::bench
