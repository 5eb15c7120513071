// What is checked when a ShardedOptimizer is made, and when parameters join it. Collective; the same verdict
// on every rank.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/ddp/sharded_optimizer.hpp"

namespace lockstep::internal {

/// Before the parameters are compared: throws unless all ranks have one optimizer, rate and stage, and views
/// of values on all or none.
void check_settings(Communicator& communicator, const Optimizer* optimizer, const ShardedOptions& options);

/// Afterwards, when lists and options are known to be equal: throws unless parameters such as `added` can be
/// sharded, and the names of all and of what is kept of them differ, as checkpoints need.
void check_shardable(Communicator& communicator, std::span<const Parameter> before,
                     std::span<const Parameter> added, const Optimizer& optimizer,
                     const ShardedOptions& options);

/// Which optimizer steps which parameter, by its number.
using Rules = std::vector<std::shared_ptr<const Optimizer>>;

/// Those of `parameters`, which all ranks have: what the options say, else `usual`. Throws unless all ranks
/// have the same, and all keep what `usual` does.
Rules rules_for(Communicator& communicator, std::span<const Parameter> parameters,
                const std::shared_ptr<const Optimizer>& usual, const ShardedOptions& options);

}  // namespace lockstep::internal
