// Starting the ranks of a benchmark: as processes, as threads, or taking the place that a launcher gave this
// process.
#pragma once

#include <functional>

#include "bench/board.hpp"
#include "bench/options.hpp"

namespace lockstep::bench {

/// One rank's part; gives its exit status.
using RankMain = std::function<int(Communicator&, Board&)>;

/// Runs `body` on every rank that --ranks, --threads or the environment ask for, and gives the exit status:
/// the first that is not 0. With --ranks nothing of the library is used in this process before the fork.
int launch(const Options& options, const RankMain& body);

}  // namespace lockstep::bench
