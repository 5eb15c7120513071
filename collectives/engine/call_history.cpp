#include "collectives/engine/call_history.hpp"

namespace lockstep::internal {

void CallHistory::keep_probe(int peer, const CallNote& call) {
  CallNote& kept = probes_[static_cast<std::size_t>(peer)];
  if (kept.sequence_plus_one == 0) ++probes_kept_;
  kept = call;
}

std::optional<int> CallHistory::settle(const CallNote& call, CallNote& theirs) {
  std::optional<int> differs;
  for (CallNote& probe : probes_) {
    if (probe.sequence_plus_one != call.sequence_plus_one) continue;
    if (!differs && !probe.is_as(call)) {
      differs = static_cast<int>(&probe - probes_.data());
      theirs = probe;
    }
    probe.sequence_plus_one = 0;
    --probes_kept_;
  }
  return differs;
}

}  // namespace lockstep::internal
