#include "bench/device/report.hpp"

#include "bench/columns.hpp"
#include "bench/json_file.hpp"
#include "bench/report.hpp"

namespace lockstep::bench {

DeviceReport::DeviceReport(const Options& options, int world, nlohmann::ordered_json device,
                           std::ostream* table)
    : options_(options), world_(world), device_(std::move(device)), table_(table) {}

void DeviceReport::note(const std::string& line) {
  notes_.push_back(line);
  if (table_ != nullptr) *table_ << "# " << line << "\n";
}

void DeviceReport::heading(const Operation& operation) {
  *table_ << "# " << operation.name << ": " << world_ << " ranks, device "
          << device_["name"].get<std::string>() << " (" << device_["backend"].get<std::string>() << "), "
          << (options_.registered ? "registered" : "plain") << " buffers; time: "
          << (device_["clock"] == name_of(Clock::host)
                  ? "by the host's clock, from the call to its end on the stream"
                  : "between two events around the call")
          << ", median over iterations of the slowest rank\n"
          << format("#%46s %31s %31s %19s\n", "", "out-of-place", "in-place", "99th percentile") << "#"
          << row_heading().names << timing_heading().names << timing_heading().names
          << format(" %9s %9s  %s\n", "out", "in", "library") << "#" << row_heading().units
          << timing_heading().units << timing_heading().units << format(" %9s %9s\n", "(us)", "(us)");
}

void DeviceReport::add(const DeviceRow& measured) {
  const Row& row = measured.row;
  const double factor = row.operation->bus_factor(world_);
  const bool checked = options_.check && row.count > 0;
  for (const bool in_place : {false, true}) {
    const std::optional<Timing>& timing = in_place ? row.in_place : row.out_of_place;
    if (!timing) continue;
    wrong_ += timing->wrong;
    rows_.push_back({{"library", measured.contender->name()},
                     {"op", row.operation->name},
                     {"buffers", options_.registered ? "registered" : "plain"},
                     {"dtype", name_of(row.type)},
                     {"redop", row.operation->reduces() ? name_of(row.op) : "none"},
                     {"ranks", world_},
                     {"bytes", row.bytes},
                     {"in_place", in_place},
                     {"time_us", timing->median_us},
                     {"p99_us", timing->p99_us},
                     {"algbw_gbs", algbw(row, *timing)},
                     {"busbw_gbs", algbw(row, *timing) * factor},
                     {"wrong", checked ? nlohmann::ordered_json(timing->wrong) : nlohmann::ordered_json()}});
  }
  if (table_ == nullptr) return;
  if (heading_of_ != row.operation) heading(*row.operation);
  heading_of_ = row.operation;
  *table_ << row_columns(row) << timing_columns(row, row.out_of_place, factor, checked)
          << timing_columns(row, row.in_place, factor, checked) << p99_column(row.out_of_place)
          << p99_column(row.in_place) << "  " << measured.contender->name() << std::endl;
}

void DeviceReport::finish() {
  if (table_ != nullptr && options_.check)
    *table_ << "# Wrong elements: " << wrong_ << (wrong_ == 0 ? " OK" : " FAILED") << "\n";
  if (options_.json.empty()) return;
  write_json(options_.json,
             {{"machine", describe_machine()}, {"device", device_}, {"notes", notes_}, {"rows", rows_}});
}

}  // namespace lockstep::bench
