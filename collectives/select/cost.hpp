// Cost: how long a world of programs takes, predicted by walking the steps that will run.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

/// What a medium costs, in seconds and seconds per byte. Measured on a machine, or assumed for one that
/// nobody here owns.
struct MediumCost {
  double alpha = 0;  ///< A message, however short, from being sent to having arrived.
  double beta = 0;   ///< Each byte of a message, at the sender and at the receiver.
  double gamma = 0;  ///< Each byte combined with a further operand.
  double copy = 0;   ///< Each byte copied within memory, or stored to a further destination.
  double sync = 0;   ///< From one rank's publish to another's await.
  double step = 0;   ///< A message at its sender and at its receiver, whatever its length; in a domain each
                     ///< copy or reduction.
  double call = 0;   ///< A call, whatever it does.
  bool operator==(const MediumCost&) const = default;
};

/// Ranks that share hosts: messages within one cost what `near` says, and what leaves or enters a host shares
/// one network.
struct SharedHosts {
  std::span<const int> of_rank;  ///< As Shape::hosts; empty: every rank has a host of its own.
  MediumCost near;
  /// What all take more for each message of any rank, and for each byte between hosts, because all send at
  /// once.
  double busy_message = 0, busy_byte = 0;
};

/// Seconds from everybody's start to the last rank's end. `programs`: one per rank, proved; infinite when
/// they do not end. Links carry messages side by side and buffer them; a rank sends and receives at most 1 /
/// beta bytes per second in each lane. Lanes of a rank do not slow one another down.
/// With shared hosts no host's network carries more than 1 / beta bytes per second each way, however many of
/// its ranks use it, and messages take longer by what they do when all send at once.
double predict_seconds(std::span<const Program> programs, std::size_t element_bytes, const MediumCost& cost,
                       const SharedHosts& shared = {});

}  // namespace lockstep::internal
