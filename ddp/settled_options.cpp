#include "ddp/settled_options.hpp"

#include "collectives/communicator_core.hpp"
#include "collectives/engine/wait_policy.hpp"

namespace lockstep::internal {
namespace {

/// All ranks on one host whose cores are all taken by them: whoever reduces during backward takes its time.
bool nobody_to_overlap_with(Communicator& communicator) {
  const EngineGroup& group = communicator.core().engine().group();
  return group.size() > 1 && on_one_host(group.members) &&
         !more_cores_than_ranks(group, group.members.front().host_id);
}

}  // namespace

ReducerOptions settled(Communicator& communicator, ReducerOptions options) {
  if (options.check_first.has_value()) return options;
  // A hook's mistakes show only afterwards, and what a forward runs beside has to be under way. Nothing that
  // may differ between ranks counts here.
  const bool may = !options.hook && !options.overlap_forward;
  options.check_first = may && nobody_to_overlap_with(communicator);
  return options;
}

}  // namespace lockstep::internal
