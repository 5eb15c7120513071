// lockstep-bench --device: one rank.
#pragma once

#include "bench/board.hpp"
#include "bench/options.hpp"

namespace lockstep::bench {

/// Makes the backend of the options that of this process and its children. Before anything of a device is
/// used.
void choose_backend(const Options& options);

/// Elements that were wrong on any rank.
std::uint64_t run_on_device(const Options& options, Communicator& communicator, Board& board);

}  // namespace lockstep::bench
