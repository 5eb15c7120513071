// --explain: what every algorithm is predicted to take and takes, and which one the library chooses.
#pragma once

#include <ostream>

#include "bench/board.hpp"
#include "bench/options.hpp"

namespace lockstep::bench {

/// One rank's part. Rank 0 prints a table to `out` for each operation, type and operator of `options`: the
/// candidates of every size, for buffers of one kind. Predictions know bytes, not types.
void explain(Communicator& communicator, Board& board, const Options& options, std::ostream& out);

}  // namespace lockstep::bench
