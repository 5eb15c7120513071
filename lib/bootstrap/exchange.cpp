#include "lib/bootstrap/exchange.hpp"

#include <algorithm>
#include <mutex>
#include <optional>

#include "lib/bootstrap/deadline.hpp"

namespace lockstep::internal {
namespace {

// How often a rank that waits for the others looks whether one of them died.
constexpr std::chrono::milliseconds kLossCheck{200};

/// The first loss among `ranks` from now on, also of ranks lost before.
class LossWatch {
 public:
  LossWatch(Session& session, std::uint64_t id, std::span<const int> ranks) : session_(session), id_(id) {
    session_.on_loss(id_, [this, ranks](const Loss& loss) {
      if (std::find(ranks.begin(), ranks.end(), loss.rank) == ranks.end()) return;
      std::lock_guard lock(mutex_);
      if (!loss_) loss_ = loss;
    });
  }
  ~LossWatch() { session_.remove_loss_callback(id_); }
  LossWatch(const LossWatch&) = delete;
  LossWatch& operator=(const LossWatch&) = delete;

  Status status() {
    std::lock_guard lock(mutex_);
    if (!loss_) return {};
    const Member& member = session_.members()[static_cast<std::size_t>(loss_->rank)];
    return Status(ErrorCode::peer_lost, who_is(loss_->rank, member) + " is gone: " + loss_->evidence,
                  loss_->rank);
  }

 private:
  Session& session_;
  const std::uint64_t id_;
  std::mutex mutex_;
  std::optional<Loss> loss_;
};

/// Repeats `attempt`, for which other ranks or the store may be late, until a rank is lost, time is over, or
/// nobody wants it any more.
template <typename Attempt>
Status repeat(const Deadline& deadline, LossWatch& watch, const StillWanted& still_wanted, Attempt attempt) {
  for (;;) {
    Status status = attempt();
    if (status.code() != ErrorCode::timeout || deadline.passed()) return status;
    LOCKSTEP_RETURN_IF_ERROR(watch.status());
    if (still_wanted) LOCKSTEP_RETURN_IF_ERROR(still_wanted());
  }
}

}  // namespace

std::string exchange_key(const std::string& name, int rank) { return name + "/" + std::to_string(rank); }

Result<std::vector<std::string>> exchange(Session& session, Env& env, const std::string& name,
                                          std::string value, std::span<const int> ranks,
                                          const std::string& what, std::chrono::milliseconds timeout,
                                          const StillWanted& still_wanted) {
  LossWatch watch(session, env.random(), ranks);
  const Deadline deadline(env, timeout);
  Store& store = session.store();
  LOCKSTEP_RETURN_IF_ERROR(repeat(deadline, watch, still_wanted,
                                  [&] { return store.set_one(exchange_key(name, session.rank()), value); }));
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(exchange_key(name, rank));
  std::vector<std::string> values;
  LOCKSTEP_RETURN_IF_ERROR(repeat(deadline, watch, still_wanted, [&] {
    auto found = store.get(keys, std::min(deadline.left(), kLossCheck));
    if (found.ok()) values = std::move(*found);
    return found.status().with_context("while waiting for " + what + " of all ranks");
  }));
  return values;
}

}  // namespace lockstep::internal
