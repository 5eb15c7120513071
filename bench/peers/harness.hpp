// The part that the programs of all contenders share: the place of a rank, and serving the driver.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bench/peers/board.hpp"
#include "bench/peers/contender.hpp"

namespace peers {

struct Place {
  std::string folder;  ///< Of this job: the board, the driver's socket, what the library needs.
  int rank = 0, world = 1;
  std::string option;  ///< A second argument, for programs that have more than one contender.
};

/// Runs one rank's program: `program FOLDER [OPTION]`. Finds the rank from what the driver, Open MPI or MPICH
/// has set, takes its core (rank modulo the allowed cores, before the library starts a thread), lets `start`
/// make the contender, and carries out orders until the driver goes. Never outlives the process that started
/// it by more than a turn. Gives the exit status.
int run_harness(int argc, char** argv, Waiting waiting,
                const std::function<std::unique_ptr<Contender>(const Place&, Board&)>& start);

}  // namespace peers
