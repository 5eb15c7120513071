#include "ddp/hook_claim.hpp"

#include <mutex>
#include <unordered_set>

namespace lockstep::internal {
namespace {

struct Claims {
  std::mutex mutex;
  std::unordered_set<const CommunicationHook*> taken;
};

/// Never destroyed: a reducer may be static.
Claims& claims() {
  static auto* const all = new Claims;
  return *all;
}

}  // namespace

HookClaim::HookClaim(CommunicationHook* hook) {
  if (hook == nullptr) return;
  {
    const std::lock_guard lock(claims().mutex);
    if (claims().taken.insert(hook).second) held_.reset(hook);
  }
  if (held_) return;
  problem_ = "hook \"" + hook->name() +
             "\" is another reducer's, whose gradients it would mix with these; make one for each";
}

void HookClaim::Release::operator()(CommunicationHook* hook) const noexcept {
  const std::lock_guard lock(claims().mutex);
  claims().taken.erase(hook);
}

}  // namespace lockstep::internal
