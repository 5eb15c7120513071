// What the library will choose for a call. The one part of lockstep-bench that looks inside the library.
#pragma once

#include <memory>
#include <string>

#include "bench/board.hpp"
#include "bench/options.hpp"
#include "collectives/select/choose.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::bench {

/// What the ranks of a run have between them; equal on all ranks.
struct Ground {
  internal::Capabilities capabilities;
  std::string transport;  ///< "shm", "tcp", "shm+tcp", "none" for one rank
  int hosts = 1;
  bool threads = false;                          ///< Any memory of a rank is addressable by the others.
  std::shared_ptr<internal::ChoiceTable> table;  ///< What the library chooses by.
  std::string model;                             ///< Its model: where from, and hash.
};
Ground ground_of(const Communicator& communicator, const Options& options);
/// Whether every rank may read the others' private memory, so that calls on it can be pulled. Collective;
/// equal on all ranks.
bool ranks_pull(const Communicator& communicator, Board& board);
/// Of a run on this host that `options` ask for.
Ground ground_of(const Options& options);

/// One call of a sweep.
struct Choice {
  const Operation* operation;
  internal::Shape shape;  ///< Of rank 0.
  /// What may run; with shared memory the ranks find out in the call which of the two, by what their buffers
  /// are.
  internal::Selection selection;
};
/// The choice for `options.algorithm`, or the library's own. Throws lockstep::Error when the algorithm is
/// none of the collective's, or not for this ground.
Choice choose(const Ground& ground, const Options& options, const Operation& operation, DataType type,
              ReduceOp op, std::uint64_t count);

/// Whether peers may use the buffers of such calls where they lie: those of a premultiplied sum are not,
/// which scales its input into private memory first.
bool are_registered(const Options& options, const Operation& operation, ReduceOp op);

/// The name for a report: of the algorithm that ran, given what kind of buffers all ranks had.
std::string algorithm_name(const Ground& ground, const Choice& choice, bool registered);

}  // namespace lockstep::bench
