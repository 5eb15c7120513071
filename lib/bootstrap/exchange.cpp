#include "lib/bootstrap/exchange.hpp"

#include <algorithm>

#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/loss_watch.hpp"

namespace lockstep::internal {
namespace {

// How often a rank that waits for the others looks whether one of them died.
constexpr std::chrono::milliseconds kLossCheck{200};

/// Repeats `attempt`, for which other ranks or the store may be late, until a rank is lost, time is over, or
/// nobody wants it any more.
template <typename Attempt>
Status repeat(Env& env, const Deadline& deadline, LossWatch& watch, const StillWanted& still_wanted,
              Attempt attempt) {
  for (;;) {
    Status status = attempt();
    if (status.code() == ErrorCode::peer_lost) return watch.explain(status, env);
    if (status.code() != ErrorCode::timeout) return status;
    LOCKSTEP_RETURN_IF_ERROR(watch.status());
    if (deadline.passed()) return status;
    if (still_wanted) LOCKSTEP_RETURN_IF_ERROR(still_wanted());
  }
}

/// Names the first of `ranks` whose value has not come.
Status name_absent(Session& session, std::span<const int> ranks, std::span<const std::string> keys,
                   const Status& timed_out) {
  const auto here = session.store().wait(keys, std::chrono::milliseconds(0));
  if (!here.ok()) return timed_out;
  const auto absent = std::find(here.value().begin(), here.value().end(), false);
  if (absent == here.value().end()) return timed_out;
  const int rank = ranks[static_cast<std::size_t>(absent - here.value().begin())];
  return Status(ErrorCode::timeout,
                who_is(session, rank) + " did not tell its own in time: see what keeps it", rank);
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
  LOCKSTEP_RETURN_IF_ERROR(repeat(env, deadline, watch, still_wanted,
                                  [&] { return store.set_one(exchange_key(name, session.rank()), value); }));
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(exchange_key(name, rank));
  std::vector<std::string> values;
  const Status met = repeat(env, deadline, watch, still_wanted, [&] {
    auto found = store.get(keys, std::min(deadline.left(), kLossCheck));
    if (found.ok()) values = std::move(*found);
    return found.status();
  });
  if (met.ok()) return values;
  if (met.culprit() >= 0) return met;
  const Status why = met.code() == ErrorCode::timeout ? name_absent(session, ranks, keys, met) : met;
  return why.with_context("while waiting for " + what + " of all ranks");
}

}  // namespace lockstep::internal
