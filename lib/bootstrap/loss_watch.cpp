#include "lib/bootstrap/loss_watch.hpp"

#include <algorithm>

#include "lib/bootstrap/deadline.hpp"

namespace lockstep::internal {
namespace {

// How much later the session may hear of a loss than this rank has noticed it.
constexpr std::chrono::milliseconds kWordComesWithin{2'000};
constexpr std::chrono::milliseconds kWordLook{10};

}  // namespace

std::string who_is(const Session& session, int rank) {
  return who_is(rank, session.members()[static_cast<std::size_t>(rank)]);
}

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

Status LossWatch::explain(const Status& noticed, Env& env) {
  const Deadline moment(env, kWordComesWithin);
  for (; !moment.passed(); sleep_for(kWordLook)) LOCKSTEP_RETURN_IF_ERROR(status());
  return noticed;
}

}  // namespace lockstep::internal
