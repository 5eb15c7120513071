// The columns of nccl-tests' table.
#pragma once

#include <optional>
#include <string>

#include "bench/measure.hpp"

namespace lockstep::bench {

/// As printf does.
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

/// GB/s as nccl-tests counts them: 10^9 bytes.
double algbw(const Row& row, const Timing& timing);

/// Heading of what a row begins with, and of a timing; two lines: names and units.
struct Heading {
  std::string names, units;
};
Heading row_heading();
Heading timing_heading();

/// What a row begins with: size, count, type, operator, root.
std::string row_columns(const Row& row);
/// Time, algbw, busbw, #wrong.
std::string timing_columns(const Row& row, const std::optional<Timing>& timing, double bus_factor,
                           bool checked);
std::string p99_column(const std::optional<Timing>& timing);

}  // namespace lockstep::bench
