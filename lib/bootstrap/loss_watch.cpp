#include "lib/bootstrap/loss_watch.hpp"

#include <algorithm>

namespace lockstep::internal {

LossWatch::LossWatch(Session& session, std::uint64_t id, std::span<const int> ranks)
    : session_(session), id_(id) {
  session_.on_loss(id_, [this, ranks](const Loss& loss) {
    if (std::find(ranks.begin(), ranks.end(), loss.rank) == ranks.end()) return;
    std::lock_guard lock(mutex_);
    if (!loss_) loss_ = loss;
  });
}

LossWatch::~LossWatch() { session_.remove_loss_callback(id_); }

Status LossWatch::status() {
  std::lock_guard lock(mutex_);
  if (!loss_) return {};
  return Status(ErrorCode::peer_lost, who_is(session_, loss_->rank) + " is gone: " + loss_->evidence,
                loss_->rank);
}

}  // namespace lockstep::internal
