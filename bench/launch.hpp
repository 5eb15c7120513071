// Starting the ranks of a benchmark: as processes, as threads, or taking the place that a launcher gave this
// process.
#pragma once

#include <functional>
#include <string>

#include "bench/board.hpp"
#include "bench/options.hpp"

namespace lockstep::bench {

/// One rank's part; gives its exit status.
using RankMain = std::function<int(Communicator&, Board&)>;

/// Runs `rank_main` in a forked process for each rank and gives the first status that is not 0. `on_failure`
/// is called here whenever a process ends with another status than 0; of one that a signal ended a line says
/// so. A signal to this process ends them all.
int run_in_processes(int ranks, const std::function<int(int)>& rank_main,
                     const std::function<void()>& on_failure);

/// Ranks to start as processes of this machine.
struct ProcessGroup {
  int ranks = 0;
  std::string transport;
  std::string secret;              ///< Needed when `enter` makes them hosts of their own.
  std::function<void(int)> enter;  ///< Called in each process before it joins; may be empty.
};
/// Starts them, joins them in a communicator, and runs `body` on each. Exit status as above.
int launch_processes(const ProcessGroup& group, const RankMain& body);

/// Runs `body` on every rank that --ranks, --threads or the environment ask for, and gives the exit status:
/// the first that is not 0. With --ranks nothing of the library is used in this process before the fork.
int launch(const Options& options, const RankMain& body);

}  // namespace lockstep::bench
