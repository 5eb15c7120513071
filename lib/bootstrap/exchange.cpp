#include "lib/bootstrap/exchange.hpp"

#include <algorithm>
#include <optional>

#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/loss_watch.hpp"

namespace lockstep::internal {
namespace {

// How often a rank that waits for the others looks whether one of them died.
constexpr std::chrono::milliseconds kLossCheck{200};

/// Repeats `attempt`, for which other ranks or the store may be late, until time is over, or nobody wants it
/// any more.
template <typename Attempt>
Status repeat(Env& env, const Deadline& deadline, const StillWanted& still_wanted, Attempt attempt) {
  for (;;) {
    Status status = attempt();
    if (status.code() == ErrorCode::peer_lost) return explain_loss(status, still_wanted, env);
    if (status.code() != ErrorCode::timeout) return status;
    LOCKSTEP_RETURN_IF_ERROR(still_wanted());
    if (deadline.passed()) return status;
  }
}

/// Names the first of `ranks` whose value has not come.
Status name_absent(Session& session, std::span<const int> ranks, std::span<const int> called,
                   std::span<const std::string> keys, const Status& timed_out) {
  const auto here = session.store().wait(keys, std::chrono::milliseconds(0));
  if (!here.ok()) return timed_out;
  const auto absent = std::find(here.value().begin(), here.value().end(), false);
  if (absent == here.value().end()) return timed_out;
  const auto place = static_cast<std::size_t>(absent - here.value().begin());
  const int number = called.empty() ? ranks[place] : called[place];
  const Member& member = session.members()[static_cast<std::size_t>(ranks[place])];
  return Status(ErrorCode::timeout,
                who_is(number, member) + " did not tell its own in time: see what keeps it", number);
}

}  // namespace

std::string exchange_key(const std::string& name, int rank) { return name + "/" + std::to_string(rank); }

Result<std::vector<std::string>> exchange(Session& session, Env& env, const std::string& name,
                                          std::string value, std::span<const int> ranks,
                                          const std::string& what, std::chrono::milliseconds timeout,
                                          const StillWanted& still_wanted, std::span<const int> called) {
  std::optional<LossWatch> watch;
  if (!still_wanted) watch.emplace(session, env.random(), ranks);
  const StillWanted goes_on = watch ? [&watch] { return watch->status(); } : still_wanted;
  const Deadline deadline(env, timeout);
  Store& store = session.store();
  LOCKSTEP_RETURN_IF_ERROR(repeat(env, deadline, goes_on,
                                  [&] { return store.set_one(exchange_key(name, session.rank()), value); }));
  std::vector<std::string> keys;
  for (const int rank : ranks) keys.push_back(exchange_key(name, rank));
  std::vector<std::string> values;
  const Status met = repeat(env, deadline, goes_on, [&] {
    auto found = store.get(keys, std::min(deadline.left(), kLossCheck));
    if (found.ok()) values = std::move(*found);
    return found.status();
  });
  if (met.ok()) return values;
  if (met.culprit() >= 0) return met;
  const Status why = met.code() == ErrorCode::timeout ? name_absent(session, ranks, called, keys, met) : met;
  return why.with_context("while waiting for " + what + " of all ranks");
}

}  // namespace lockstep::internal
