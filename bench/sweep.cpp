#include "bench/sweep.hpp"

#include <algorithm>
#include <cmath>

#include "lib/reduce/reduce.hpp"

namespace lockstep::bench {
namespace {

// Without -n: a row takes about this long, with at least that many iterations.
constexpr double kMeasureSeconds = 0.3;
constexpr double kMinIterations = 7;

}  // namespace

void for_each_kind(const Options& options, const Operation& operation,
                   const std::function<void(DataType, ReduceOp)>& visit) {
  for (DataType type : options.types) {
    for (ReduceOp op : options.redops) {
      if (operation.reduces() && options.types.size() * options.redops.size() > 1 &&
          !internal::check_reduction(type, op).ok()) {
        continue;
      }
      visit(type, op);
      if (!operation.reduces()) break;  // one operator stands for all where none is applied
    }
  }
}

void for_each_row(
    const Options& options,
    const std::function<void(const Operation&, DataType, ReduceOp, std::uint64_t)>& measure_row) {
  for (const Operation* operation : options.operations) {
    if (operation->source == Source::none) {
      measure_row(*operation, options.types.front(), options.redops.front(), 0);
      continue;
    }
    for_each_kind(options, *operation, [&](DataType type, ReduceOp op) {
      for (std::uint64_t bytes : sweep(options)) measure_row(*operation, type, op, bytes);
    });
  }
}

std::size_t iterations_after(std::vector<double>& warmup_us, Board& board, const Options& options) {
  if (options.iterations > 0) return static_cast<std::size_t>(options.iterations);
  board.max(warmup_us);
  const auto middle = warmup_us.begin() + static_cast<std::ptrdiff_t>(warmup_us.size() / 2);
  std::nth_element(warmup_us.begin(), middle, warmup_us.end());
  const double estimate_us = std::max(*middle, 0.01);
  return static_cast<std::size_t>(
      std::clamp(kMeasureSeconds * 1e6 / estimate_us, kMinIterations, double{kMaxIterations}));
}

Timing summary_of(std::vector<double>& times_us, Board& board) {
  board.max(times_us);
  std::sort(times_us.begin(), times_us.end());
  const auto p99 = static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(times_us.size())));
  Timing timing;
  timing.median_us = times_us[times_us.size() / 2];
  timing.p99_us = times_us[p99 - 1];
  return timing;
}

}  // namespace lockstep::bench
