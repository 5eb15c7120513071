// HookClaim: a hook keeps what it keeps for the buckets of one reducer, so that no second one may use it.
#pragma once

#include <memory>
#include <string>

#include "lockstep/ddp/communication_hook.hpp"

namespace lockstep::internal {

/// Ends before the hook does. Of a rank and its process alone: a hook's peers are other objects.
class HookClaim {
 public:
  HookClaim() = default;
  /// `hook` may be null.
  explicit HookClaim(CommunicationHook* hook);

  /// Why the caller cannot use the hook; empty when it can.
  const std::string& problem() const noexcept { return problem_; }

 private:
  struct Release {
    void operator()(CommunicationHook* hook) const noexcept;
  };
  std::unique_ptr<CommunicationHook, Release> held_;
  std::string problem_;
};

}  // namespace lockstep::internal
