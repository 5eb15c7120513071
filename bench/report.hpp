// What lockstep-bench prints: nccl-tests' table, with the 99th percentiles after it, and JSON.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>

#include "bench/choice.hpp"
#include "bench/measure.hpp"

namespace lockstep::bench {

/// Rank 0's report of a run.
class Report {
 public:
  /// The table goes to `table` unless it is null.
  Report(const Options& options, Ground ground, std::ostream* table);
  void add(const Row& row);
  /// Prints the closing lines and writes the JSON. Throws std::runtime_error when the file cannot be written.
  void finish();

 private:
  void heading(const Operation& operation);

  const Options& options_;
  Ground ground_;
  std::ostream* table_;
  const Operation* heading_of_ = nullptr;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  double busbw_sum_ = 0;
  int timings_ = 0;
  std::uint64_t wrong_ = 0;
};

/// The machine that the figures are from: processor, cores, memory, kernel, compiler, version of lockstep.
nlohmann::ordered_json describe_machine();

}  // namespace lockstep::bench
