#include "bench/columns.hpp"

#include <cstdarg>
#include <cstdio>

namespace lockstep::bench {

std::string format(const char* pattern, ...) {
  char line[256];
  va_list values;
  va_start(values, pattern);
  std::vsnprintf(line, sizeof line, pattern, values);
  va_end(values);
  return line;
}

double algbw(const Row& row, const Timing& timing) {
  return timing.median_us > 0 ? static_cast<double>(row.bytes) / timing.median_us / 1e3 : 0;
}

Heading row_heading() {
  return {format("%10s %12s %8s %8s %4s", "size", "count", "type", "redop", "root"),
          format("%10s %12s %8s %8s %4s", "(B)", "(elements)", "", "", "")};
}

Heading timing_heading() {
  return {format(" %8s %7s %7s %6s", "time", "algbw", "busbw", "#wrong"),
          format(" %8s %7s %7s %6s", "(us)", "(GB/s)", "(GB/s)", "")};
}

std::string row_columns(const Row& row) {
  const std::string type(name_of(row.type));
  const std::string op(row.operation->reduces() ? name_of(row.op) : "none");
  return format("%11llu %12llu %8s %8s %4d", static_cast<unsigned long long>(row.bytes),
                static_cast<unsigned long long>(row.count), type.c_str(), op.c_str(),
                row.operation->rooted ? row.root : -1);
}

std::string timing_columns(const Row& row, const std::optional<Timing>& timing, double bus_factor,
                           bool checked) {
  if (!timing) return format(" %8s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
  const std::string wrong = checked ? std::to_string(timing->wrong) : "N/A";
  const double bandwidth = algbw(row, *timing);
  return format(" %8.2f %7.2f %7.2f %6s", timing->median_us, bandwidth, bandwidth * bus_factor,
                wrong.c_str());
}

std::string p99_column(const std::optional<Timing>& timing) {
  return timing ? format(" %9.2f", timing->p99_us) : format(" %9s", "N/A");
}

}  // namespace lockstep::bench
