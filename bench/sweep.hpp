// What every measurement of a sweep shares: its rows, how often a call is timed, and what the times come to.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "bench/board.hpp"
#include "bench/measure.hpp"
#include "bench/options.hpp"

namespace lockstep::bench {

/// The types and operators that the options ask for and that are defined for this operation.
void for_each_kind(const Options& options, const Operation& operation,
                   const std::function<void(DataType, ReduceOp)>& visit);

/// Calls `measure_row(operation, type, op, bytes)` for every row that the options ask for and that is
/// defined.
void for_each_row(
    const Options& options,
    const std::function<void(const Operation&, DataType, ReduceOp, std::uint64_t)>& measure_row);

/// Timed iterations: those asked for, or as many as fit, by the times of the warm-up. Equal on all ranks.
std::size_t iterations_after(std::vector<double>& warmup_us, Board& board, const Options& options);

/// Median and 99th percentile of the slowest rank's times. Equal on all ranks.
Timing summary_of(std::vector<double>& times_us, Board& board);

}  // namespace lockstep::bench
