#include "collectives/engine/domain_revoke.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "collectives/engine/limits.hpp"
#include "collectives/engine/reason.hpp"

namespace lockstep::internal {

void DomainRevoke::tell(const Status& reason) {
  if (domain_ == nullptr) return;
  const std::string text = encode_reason(reason);
  for (int member = 0; member < domain_->size(); ++member) {
    MemberControl& control = domain_->control(member);
    std::uint32_t untold = kUntold;
    if (!control.revoked.compare_exchange_strong(untold, kBeingTold, std::memory_order_seq_cst)) continue;
    std::copy(text.begin(), text.end(), control.reason);
    control.reason[text.size()] = '\0';
    control.revoked.store(kTold, std::memory_order_seq_cst);
    if (member != rank_) domain_->ring(member);
  }
}

/// To write a reason takes a moment; unless its writer died there, then the loss is the reason.
Status DomainRevoke::told_to(int member) const {
  const MemberControl& control = domain_->control(member);
  for (int i = 0; i < 1000 && control.revoked.load(std::memory_order_acquire) == kBeingTold; ++i)
    sched_yield();
  if (control.revoked.load(std::memory_order_acquire) != kTold) return {};
  // Whoever may write there may leave it without an end.
  return decode_reason({control.reason, strnlen(control.reason, sizeof control.reason)}, domain_->size());
}

std::optional<Status> DomainRevoke::take() {
  if (!is_told()) return std::nullopt;
  if (Status why = told_to(rank_); !why.ok()) return why;
  const Nanos now = env_.now();
  if (unexplained_ == 0) unexplained_ = now;
  if (now - unexplained_ <= kExplanationWait) return std::nullopt;
  return Status(ErrorCode::aborted,
                "a rank has revoked the communicator, and was stopped before it said why");
}

}  // namespace lockstep::internal
