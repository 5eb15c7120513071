// Network: what messages between hosts cost, as a job measured it at its start or its tuning file says.
#pragma once

#include <cstdint>

namespace lockstep::internal {

/// Seconds, equal on all ranks. What two ranks alone on the network need, and what it takes more when all
/// send at once: where hosts share a switch that is too narrow, or, as containers of one machine do, its
/// cores.
struct Network {
  double latency = 0;       ///< A short message from one rank to another.
  double byte = 0;          ///< Each byte of a long one.
  double busy_latency = 0;  ///< More for each message that every rank sends.
  double busy_byte = 0;     ///< More for each byte that every host sends.
  bool operator==(const Network&) const = default;

  bool known() const { return latency > 0; }
};

/// The four figures as they were measured, in nanoseconds, and picoseconds for a byte.
struct MeasuredNetwork {
  std::int64_t latency = 0, byte = 0, busy_latency = 0, busy_byte = 0;
};

/// By two significant bits: near figures of two runs become the same, and so do the choices made by them.
Network coarse(const MeasuredNetwork& measured);

}  // namespace lockstep::internal
