#include "collectives/device/device_groups.hpp"

#include <utility>

#include "collectives/device/hosts/across_hosts.hpp"

namespace lockstep::internal {
namespace {

/// The words that the engine has for the end of a group.
Status reason_of(Engine& engine) {
  return engine.reason().with_context("lockstep: the group \"" + engine.group().name + "\" ended on rank " +
                                      std::to_string(engine.group().rank));
}

}  // namespace

std::vector<CommunicatorCore*> DeviceGroups::all() const {
  std::vector<CommunicatorCore*> groups;
  for (CommunicatorCore* const group : {collectives.get(), control.get(), straight.get()}) {
    if (group != nullptr) groups.push_back(group);
  }
  groups.insert(groups.end(), of_hosts.begin(), of_hosts.end());
  return groups;
}

Status DeviceGroups::ended() const {
  for (CommunicatorCore* const group : all()) {
    if (group->engine().poll_state() != ErrorCode::ok)
      return in_ranks_of(*control, *group, reason_of(group->engine()));
  }
  return {};
}

Status DeviceGroups::explained(Status status) const {
  if (status.code() != ErrorCode::peer_lost) return status;
  for (CommunicatorCore* const group : all()) {
    const ErrorCode state = group->engine().poll_state();
    if (state != ErrorCode::ok && state != ErrorCode::peer_lost)
      return in_ranks_of(*control, *group, reason_of(group->engine()));
  }
  return status;
}

Status DeviceGroups::explained(const CallTrouble& trouble, std::string_view what) const {
  Engine& here = near->engine();
  const std::string member = here.who(trouble.member), self = here.who(near->rank());
  const auto in_all = [&](ErrorCode code, std::string text) {
    return of_near(Status(code, std::move(text), trouble.member));
  };
  if (trouble.has_left)
    return in_all(ErrorCode::peer_lost,
                  "lockstep: " + member + " left while " + std::string(what) + " waited for it");
  if (trouble.is_late)
    return in_all(ErrorCode::timeout,
                  "lockstep: the deadline of " + std::string(what) + " passed; it waited for " + member);
  return in_all(ErrorCode::mismatch, "lockstep: " + std::string(what) + ": " + member + " sends " +
                                         std::to_string(trouble.sent) + " bytes, but " + self + " receives " +
                                         std::to_string(trouble.expected));
}

Status DeviceGroups::of_near(Status status) const { return in_ranks_of(*control, *near, std::move(status)); }

/// What this rank lacks, or its device refused, is nobody else's fault.
Status DeviceGroups::in_words_for_peers(const Status& why) const {
  if (!why.is_of_this_process()) return why;
  const int self = control->rank();
  return Status(why.code(), engine().who(self) + ": " + why.message(), self);
}

void DeviceGroups::revoke(const Status& why) const {
  const Status reason = engine().reason();
  const Status told = reason.code() == ErrorCode::refused ? reason : in_words_for_peers(why);
  for (CommunicatorCore* const group : all())
    group->engine().request_revoke(for_ranks_of(*group, *control, told));
}

void DeviceGroups::close() const {
  for (CommunicatorCore* const group : all()) group->engine().close();
}

}  // namespace lockstep::internal
