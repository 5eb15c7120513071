// DomainRevoke: the end of a communicator as its ranks tell each other in shared memory.
#pragma once

#include <optional>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "transports/domain.hpp"

namespace lockstep::internal {

/// The first reason in a member's control area stays. Not thread-safe (the engine's lock guards it).
class DomainRevoke {
 public:
  /// Without a domain nobody tells anything there.
  DomainRevoke(Domain* domain, int rank, Env& env) : domain_(domain), rank_(rank), env_(env) {}

  /// Tells every member that has not been told; one that sleeps is woken.
  void tell(const Status& reason);
  /// Whether this rank has been told.
  bool is_told() const { return domain_->control(rank_).revoked.load(std::memory_order_acquire) != 0; }
  /// What `member` was told; ok when it was not, or the words are not there yet.
  Status told_to(int member) const;
  /// What this rank was told, once it is there. Who writes it may have been stopped in the midst, and keeps
  /// all others from writing theirs: after kExplanationWait the reason is that.
  std::optional<Status> take();

 private:
  enum : std::uint32_t { kUntold, kBeingTold, kTold };

  Domain* const domain_;
  const int rank_;
  Env& env_;
  Nanos unexplained_ = 0;  // When this rank was first seen to be told without a reason; 0: never.
};

}  // namespace lockstep::internal
