// DeviceGroups: the groups of ranks that one communicator of devices is made of. They end together, and what
// one of them tells names ranks by their numbers among all.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "collectives/device/call_runner.hpp"

namespace lockstep::internal {

/// Filled by set-up; thread-safe afterwards.
struct DeviceGroups {
  std::shared_ptr<CommunicatorCore> control;      ///< All, on host memory: for set-up, and words of messages.
  std::shared_ptr<CommunicatorCore> near;         ///< Those of this host; `control` where all are on one.
  std::shared_ptr<CommunicatorCore> collectives;  ///< All, in the order of the calls.
  std::shared_ptr<CommunicatorCore> straight;     ///< All: moves messages between devices, or null.
  std::vector<CommunicatorCore*> of_hosts;        ///< Those of AcrossHosts.

  /// Whose group and sequence the calls belong to.
  Engine& engine() const { return collectives->engine(); }
  bool have_several_hosts() const { return near != control; }

  /// Why one ended, if one did.
  Status ended() const;
  /// A peer that revoked a group and left may be missed before its words are heard.
  Status explained(Status status) const;
  /// Why a kernel gave up a wait in `what`.
  Status explained(const CallTrouble& trouble, std::string_view what) const;
  /// What the ranks of this host report.
  Status of_near(Status status) const;

  /// Each group is told who failed by the number that it has there. A call that was refused is an error of
  /// its own to its caller: the peers hear the same by all groups.
  void revoke(const Status& why) const;
  /// This rank leaves those that there are.
  void close() const;

 private:
  Status in_words_for_peers(const Status& why) const;
  /// All that are to be revoked when one is.
  std::vector<CommunicatorCore*> all() const;
};

}  // namespace lockstep::internal
