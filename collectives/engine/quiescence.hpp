// Quiescence: after a revoke, no byte of the callers' memory is touched any more.
#pragma once

#include <optional>
#include <vector>

#include "collectives/engine/engine_group.hpp"
#include "collectives/engine/operation.hpp"
#include "lib/base/env.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// What peers, and links that move data straight from and to the callers' memory, may still do to it, and the
/// wait until they do not. Not thread-safe (the engine's lock guards it).
class Quiescence {
 public:
  /// All outlive it. `memory`: the domain's operations are a device's. Not `awaited`: all ranks are this
  /// thread, as in a simulation.
  Quiescence(const EngineGroup& group, Transport* transport, const DomainMemory* memory, Env& env,
             bool awaited);

  /// The communicator has ended: from now on so long, and no longer, peers that do not answer are awaited.
  void begin();
  /// Whether links have let go of the callers' memory. What a living peer awaits or sends is over in a
  /// moment; one that is `lost`, or stopped, is cut off.
  bool withdraw(const std::vector<bool>& lost);
  /// Of an operation in the domain, which is given up: after this no peer writes to this rank's memory any
  /// more, not even one that was stopped and resumes.
  bool is_quiet(Operation& operation);
  /// What an operation ends with that is quiet, or was awaited long enough: `reason`, and what else the
  /// caller must know.
  Status end_of(const Operation& operation, const Status& reason);

 private:
  bool is_awaited(int member) const;
  bool is_thread(int member) const;
  bool is_used_by(int member) const;

  const EngineGroup& group_;
  Transport* const transport_;
  Domain* const domain_;
  const DomainMemory* const memory_;
  Env& env_;
  const bool awaited_;
  Nanos until_ = 0;
  int withdrawn_ = 0;                 // The links to ranks below it have let go.
  std::optional<Exposure> exposure_;  // Of the collective that fails next, as it was when it was given up.
};

}  // namespace lockstep::internal
