// Measuring collectives on devices: every row by all contenders in turn.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "bench/board.hpp"
#include "bench/device/contender.hpp"
#include "bench/device/stopwatch.hpp"
#include "bench/measure.hpp"

namespace lockstep::bench {

struct DeviceRow {
  const Contender* contender;
  Row row;  ///< Times of the slowest rank.
};

/// As measure(), for each of `contenders`, timed by `clock`. `report` is called with equal rows on all ranks.
void measure_on_device(std::span<const std::unique_ptr<Contender>> contenders, int rank, int world,
                       Board& board, const Options& options, Clock clock,
                       const std::function<void(const DeviceRow&)>& report);

}  // namespace lockstep::bench
