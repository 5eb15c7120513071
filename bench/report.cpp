#include "bench/report.hpp"

#include "bench/columns.hpp"
#include "bench/json_file.hpp"

namespace lockstep::bench {
namespace {

// What one operation sent over links; shared memory that programs address themselves shows nothing here.
std::string sent_column(const std::optional<Timing>& timing) {
  const std::string text = timing ? text_of(timing->sent) : "";
  return text.empty() ? "" : "  " + text;
}

nlohmann::ordered_json sent_json(const Traffic& sent) {
  nlohmann::ordered_json media = nlohmann::ordered_json::object();
  for (std::size_t medium = 0; medium < sent.size(); ++medium) {
    if (sent[medium] > 0) media[std::string(kMedia[medium])] = sent[medium];
  }
  return media;
}

}  // namespace

Report::Report(const Options& options, Ground ground, std::ostream* table)
    : options_(options), ground_(std::move(ground)), table_(table) {}

void Report::heading(const Operation& operation) {
  *table_ << "# " << operation.name << ": " << ground_.capabilities.world << " ranks"
          << (ground_.hosts > 1 ? " on " + std::to_string(ground_.hosts) + " hosts" : "") << ", transport "
          << ground_.transport << ", " << (options_.registered ? "registered" : "private")
          << " buffers, algorithm " << (options_.algorithm.empty() ? "auto" : options_.algorithm)
          << "; time: median over iterations of the slowest rank\n"
          << format("#%46s %31s %31s %19s\n", "", "out-of-place", "in-place", "99th percentile") << "#"
          << row_heading().names << timing_heading().names << timing_heading().names
          << format(" %9s %9s  %s\n", "out", "in", "sent (B)") << "#" << row_heading().units
          << timing_heading().units << timing_heading().units << format(" %9s %9s\n", "(us)", "(us)");
}

void Report::add(const Row& row) {
  const double factor = row.operation->bus_factor(ground_.capabilities.world);
  const Choice choice = choose(ground_, options_, *row.operation, row.type, row.op, row.count);
  const std::string algorithm =
      algorithm_name(ground_, choice, are_registered(options_, *row.operation, row.op));
  const bool checked = options_.check && row.count > 0;
  std::string columns;
  for (const bool in_place : {false, true}) {
    const std::optional<Timing>& timing = in_place ? row.in_place : row.out_of_place;
    columns += timing_columns(row, timing, factor, checked);
    if (!timing) continue;
    const double bandwidth = algbw(row, *timing);
    busbw_sum_ += bandwidth * factor;
    ++timings_;
    wrong_ += timing->wrong;
    rows_.push_back({{"op", row.operation->name},
                     {"algorithm", algorithm},
                     {"transport", ground_.transport},
                     {"hosts", ground_.hosts},
                     {"sent_bytes", sent_json(timing->sent)},
                     {"buffers", options_.registered ? "registered" : "private"},
                     {"dtype", name_of(row.type)},
                     {"redop", row.operation->reduces() ? name_of(row.op) : "none"},
                     {"ranks", ground_.capabilities.world},
                     {"bytes", row.bytes},
                     {"in_place", in_place},
                     {"time_us", timing->median_us},
                     {"p99_us", timing->p99_us},
                     {"algbw_gbs", bandwidth},
                     {"busbw_gbs", bandwidth * factor},
                     {"wrong", checked ? nlohmann::ordered_json(timing->wrong) : nlohmann::ordered_json()}});
  }
  if (table_ == nullptr) return;
  if (heading_of_ != row.operation) heading(*row.operation);
  heading_of_ = row.operation;
  *table_ << row_columns(row) << columns << p99_column(row.out_of_place) << p99_column(row.in_place)
          << sent_column(row.out_of_place ? row.out_of_place : row.in_place) << std::endl;
}

void Report::finish() {
  if (table_ != nullptr) {
    if (ground_.capabilities.world == 1)
      *table_ << "# One rank has nobody to communicate with: --ranks N starts N of them\n";
    if (options_.check)
      *table_ << "# Wrong elements: " << wrong_ << (wrong_ == 0 ? " OK" : " FAILED") << "\n";
    *table_ << format("# Average bus bandwidth: %g GB/s\n", timings_ > 0 ? busbw_sum_ / timings_ : 0);
  }
  write_json(options_.json, {{"machine", describe_machine()}, {"rows", rows_}});
}

}  // namespace lockstep::bench
