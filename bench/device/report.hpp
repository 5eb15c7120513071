// The report of lockstep-bench --device: nccl-tests' table, one line a library and row, and JSON.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/device/measure.hpp"

namespace lockstep::bench {

/// Rank 0's.
class DeviceReport {
 public:
  /// `device`: as device::Properties says. The table goes to `table` unless it is null.
  DeviceReport(const Options& options, int world, nlohmann::ordered_json device, std::ostream* table);
  /// A line before the rows: how a library will run, or why it cannot.
  void note(const std::string& line);
  void add(const DeviceRow& row);
  void finish();

 private:
  void heading(const Operation& operation);

  const Options& options_;
  const int world_;
  nlohmann::ordered_json device_;
  std::ostream* table_;
  const Operation* heading_of_ = nullptr;
  std::vector<std::string> notes_;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
  std::uint64_t wrong_ = 0;
};

}  // namespace lockstep::bench
