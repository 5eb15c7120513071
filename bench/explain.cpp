#include "bench/explain.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/choice.hpp"
#include "bench/columns.hpp"
#include "bench/programs.hpp"
#include "bench/sampler.hpp"
#include "bench/sweep.hpp"
#include "collectives/select/predict.hpp"
#include "collectives/select/pulling.hpp"

namespace lockstep::bench {
namespace {

using internal::Algorithm;
using internal::Medium;

constexpr Effort kEffort{8e-3, 5};

// One line of the table.
struct Line {
  std::string name;
  double predicted = 0, measured = 0;  // Seconds; 0: the model does not predict it.
  bool chosen = false, pulled = false;
};

// The candidates of one operation at one size; candidate i is line i.
struct Comparison {
  std::vector<Candidate> candidates;
  std::vector<Line> lines;
};

// What one table is about.
struct Subject {
  const Operation* operation;
  DataType type;
  ReduceOp op;
  bool registered;  // What other processes may use where it lies.
};

std::string kind_text(const Subject& subject) {
  std::string text(name_of(subject.type));
  if (subject.operation->reduces()) text += " " + std::string(name_of(subject.op));
  return text;
}

// Whether calls with such buffers can run it.
bool is_candidate(const Ground& ground, const Algorithm& row, bool addressable, bool pulls) {
  if (!ground.capabilities.domain) return row.medium == Medium::links;
  return row.medium == Medium::domain_staged || (addressable && row.medium == Medium::domain_registered) ||
         (!addressable && pulls && row.medium == Medium::domain_pulled);
}

// `pulls`: the ranks may read each other's private memory.
Comparison compare(const Ground& ground, const Options& options, const Subject& subject, bool pulls,
                   std::uint64_t size) {
  const auto& [operation, type, op, registered] = subject;
  const std::uint64_t count = operation->count(size, type, ground.capabilities.world);
  const Choice choice = choose(ground, options, *operation, type, op, count);
  const std::uint64_t bytes = count * size_of(type);
  const internal::CostModel& model = ground.table->model();
  Comparison comparison;
  const auto add = [&](std::string algorithm, const std::string& shown, double predicted, bool chosen) {
    comparison.candidates.push_back({subject.operation, std::move(algorithm), subject.registered, size,
                                     subject.type, subject.op, options.root});
    comparison.lines.push_back({shown, predicted, 0, chosen});
  };
  if (choice.selection.inline_line) {
    add("", "inline", model.cost(internal::LinkClass::inline_line, ground.table->ground().load).sync, true);
  }
  const bool addressable = registered || ground.threads;
  const std::string chosen = algorithm_name(ground, choice, registered);
  for (const Algorithm& row : internal::algorithms()) {
    if (row.collective != choice.shape.collective || !row.supports(choice.shape)) continue;
    if (!is_candidate(ground, row, addressable, pulls)) continue;
    if (row.medium == Medium::domain_pulled) {
      add(full_name(row), full_name(row), 0, choice.selection.registered == &row);  // By name.
      comparison.lines.back().pulled = choice.selection.pulled != nullptr;
      continue;
    }
    // A forced name that exists for both kinds of buffers runs as the buffers are.
    const bool namesake = addressable && row.medium == Medium::domain_staged &&
                          find_algorithm(row.collective, Medium::domain_registered, row.name).ok();
    if (namesake) continue;
    const std::string name = full_name(row);
    add(name, name, predict_call(model, ground.table->ground(), row, bytes),
        !choice.selection.inline_line && row.name == chosen);
  }
  return comparison;
}

// Which of both ways is taken the calls find out, by what the two take them.
void choose_pulled(std::vector<Line>& lines) {
  const auto is_chosen = [](const Line& line) { return line.chosen; };
  const auto chosen = std::find_if(lines.begin(), lines.end(), is_chosen);
  const auto pulled = std::find_if(lines.begin(), lines.end(), [](const Line& line) { return line.pulled; });
  if (chosen == lines.end() || pulled == lines.end() || pulled->chosen) return;
  if (!internal::pulling_pays(pulled->measured, chosen->measured)) return;
  chosen->chosen = false;
  pulled->chosen = true;
}

// A line, where it is known.
std::string network_text(const internal::Network& network) {
  if (!network.known()) return "";
  char text[160];
  std::snprintf(
      text, sizeof text,
      "# between hosts: %.3g us a message, %.3g ns a byte; where all send at once %.3g us and %.3g ns "
      "more\n",
      network.latency * 1e6, network.byte * 1e9, network.busy_latency * 1e6, network.busy_byte * 1e9);
  return text;
}

class Table {
 public:
  explicit Table(std::ostream& out) : out_(out) {}

  void heading(const Ground& ground, const Subject& subject) {
    out_ << "# " << subject.operation->name << ", " << kind_text(subject) << ": " << ground.capabilities.world
         << " ranks, transport " << ground.transport << ", "
         << (subject.registered ? "registered" : "private") << " buffers; model " << ground.model << '\n'
         << network_text(ground.table->ground().network)
         << "#     size  algorithm                     predicted   measured  of best\n"
         << "#      (B)                                     (us)       (us)\n";
  }

  void add(std::uint64_t size, const std::vector<Line>& lines) {
    double best = lines.front().measured;
    for (const Line& line : lines) best = std::min(best, line.measured);
    if (std::none_of(lines.begin(), lines.end(), [](const Line& line) { return line.chosen; }))
      is_another_at_ = size;
    for (const Line& line : lines) {
      char text[160];
      const std::string predicted = line.predicted > 0 ? format("%.2f", line.predicted * 1e6) : "-";
      std::snprintf(text, sizeof text, "%10llu  %-28s %10s %10.2f %8.2f%s\n",
                    static_cast<unsigned long long>(size), line.name.c_str(), predicted.c_str(),
                    line.measured * 1e6, line.measured / best, line.chosen ? "  <- chosen" : "");
      out_ << text;
      if (!line.chosen || line.measured / best <= worst_) continue;
      worst_ = line.measured / best;
      worst_at_ = size;
    }
  }

  void finish() {
    if (is_another_at_ != kNone)
      return void(out_ << "# the choice is none of these (at " << is_another_at_ << " bytes)\n");
    if (worst_ <= 1) return void(out_ << "# the choice is the best measured at every size\n");
    char text[120];
    std::snprintf(text, sizeof text,
                  "# the choice takes at most %.2f times the best measured (at %llu bytes)\n", worst_,
                  static_cast<unsigned long long>(worst_at_));
    out_ << text;
  }

 private:
  std::ostream& out_;
  double worst_ = 1;
  std::uint64_t worst_at_ = 0;
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t is_another_at_ = kNone;  // The last of such sizes.
};

}  // namespace

void explain(Communicator& communicator, Board& board, const Options& options, std::ostream& out) {
  const Ground ground = ground_of(communicator, options);
  const bool prints = communicator.rank() == 0, pulls = ranks_pull(communicator, board);
  Sampler sampler(communicator, board, options.max_bytes);
  for (const Operation* operation : options.operations) {
    if (!operation->is_explained()) continue;
    for_each_kind(options, *operation, [&](DataType type, ReduceOp op) {
      const Subject subject{operation, type, op, are_registered(options, *operation, op)};
      Table table(out);
      if (prints) table.heading(ground, subject);
      for (const std::uint64_t size : sweep(options)) {
        Comparison comparison = compare(ground, options, subject, pulls, size);
        if (comparison.lines.empty()) continue;
        const std::vector<double> seconds = sampler.measure(comparison.candidates, kEffort);
        for (std::size_t i = 0; i < seconds.size(); ++i) comparison.lines[i].measured = seconds[i];
        choose_pulled(comparison.lines);
        const std::uint64_t count = operation->count(size, type, communicator.size());
        if (prints) table.add(operation->bytes(count, type, communicator.size()), comparison.lines);
      }
      if (prints) table.finish();
    });
  }
}

}  // namespace lockstep::bench
