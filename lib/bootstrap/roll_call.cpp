#include "lib/bootstrap/roll_call.hpp"

#include <algorithm>

#include "lib/base/log.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/bootstrap/wire.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

// How long one look waits for members before it looks for problems: an error is known this late, success at
// once.
constexpr milliseconds kShortestLook{50};
constexpr milliseconds kLongestLook{500};
constexpr std::int64_t kReportEverySeconds = 5;
// For a key that another rank sets right after one that is there already; long, because machines are busy at
// start.
constexpr milliseconds kLongestMoment{20'000};
constexpr int kRanksNamed = 16;    // Missing ranks listed; more would hide the cause.
constexpr int kRefusalsNamed = 4;  // Their reasons are sentences.
constexpr std::string_view kProblem = "problem";
constexpr const char* kStartedAnew =
    "; a process that was started anew cannot join the others: start all ranks again, or give the new group "
    "a rendezvous of its own";

bool all(const std::vector<bool>& bits) { return std::find(bits.begin(), bits.end(), false) == bits.end(); }

std::string encode_problem(const Status& problem) {
  std::string text;
  WireWriter writer(text);
  writer.integer(static_cast<std::int32_t>(problem.code()));
  writer.integer(static_cast<std::int32_t>(problem.culprit()));
  writer.raw(as_bytes(problem.message()));
  return text;
}

Status decode_problem(std::string_view text) {
  ErrorCode code = ErrorCode::ok;
  std::int32_t culprit = -1;
  std::span<const std::byte> message;
  WireReader reader(as_bytes(text));
  if (!reader.code(code) || !reader.integer(culprit) || code == ErrorCode::ok ||
      !reader.raw(reader.left(), message)) {
    return Status(ErrorCode::unauthorized, "the ranks' common error in the store is damaged");
  }
  return Status(code, std::string(as_text(message)), culprit);
}

std::string failed_key(std::uint64_t group) { return "failed/" + std::to_string(group); }

/// Writes the problem unless there is one; the one that is there, or will be in a moment, is everybody's.
Status declare_in(GroupStore& group, const Status& problem, milliseconds moment) {
  auto problems = group.add("problems", 1);
  if (!problems.ok()) return problem;
  if (*problems == 1) {
    const Store::Entry entries[] = {
        {group_prefix(group.number()) + std::string(kProblem), encode_problem(problem)},
        {failed_key(group.number()), "1"}};
    (void)group.whole().set(entries);
    return problem;
  }
  auto first = group.get_one(std::string(kProblem), moment);
  return first.ok() ? decode_problem(*first) : problem;
}

std::string latest_key(int rank) { return "latest/" + std::to_string(rank); }

using Latest = RollCall::Latest;

std::string encode(const Latest& latest) {
  std::string text;
  WireWriter writer(text);
  writer.integer(latest.group);
  writer.integer(latest.process);
  writer.text(latest.who);
  return text;
}

Latest decode_latest(int rank, std::string_view text) {
  Latest latest{rank, 0, 0, {}};
  std::string_view who;
  WireReader reader(as_bytes(text));
  if (reader.integer(latest.group) && reader.integer(latest.process) && reader.text(kMaxKeyBytes, who))
    latest.who = who;
  return latest;
}

/// Of the ranks that are not `present`, those that have ever come.
std::vector<Latest> latest_of_missing(Store& whole, const std::vector<bool>& present) {
  std::vector<std::string> keys;
  for (std::size_t rank = 0; rank < present.size(); ++rank)
    keys.push_back(latest_key(static_cast<int>(rank)));
  auto known = whole.wait(keys, milliseconds(0));
  std::vector<int> ranks;
  std::vector<std::string> known_keys;
  for (std::size_t rank = 0; known.ok() && rank < present.size(); ++rank) {
    if (present[rank] || !known.value()[rank]) continue;
    ranks.push_back(static_cast<int>(rank));
    known_keys.push_back(keys[rank]);
  }
  auto texts = whole.get(known_keys, milliseconds(0));
  std::vector<Latest> latest;
  for (std::size_t i = 0; texts.ok() && i < ranks.size(); ++i)
    latest.push_back(decode_latest(ranks[i], texts.value()[i]));
  return latest;
}

}  // namespace

Result<std::uint64_t> next_group(Store& whole, int rank, int world, std::uint64_t met) {
  std::uint64_t next = met + 1;
  // Where this process met, or failed, its number is used up. A store made anew since knows nothing of it.
  if (auto text = whole.get_one(latest_key(rank), milliseconds(0)); text.ok()) {
    const Latest own = decode_latest(rank, *text);
    if (own.process == process_token()) next = std::max(next, own.group + 1);
  }
  for (;; ++next) {
    const auto failed = whole.wait(std::vector<std::string>{failed_key(next)}, milliseconds(0));
    if (!failed.ok()) return failed.status();
    if (!failed.value().front()) return next;
    const auto ranks = latest_of_missing(whole, std::vector<bool>(static_cast<std::size_t>(world)));
    const bool given_up =
        std::any_of(ranks.begin(), ranks.end(), [next](const Latest& other) { return other.group > next; });
    if (!given_up) return next;
  }
}

Status RollCall::arrive() {
  const Latest latest{self_.rank, store_.number(), self_.process, name_};
  LOCKSTEP_RETURN_IF_ERROR(store_.whole().set_one(latest_key(self_.rank), encode(latest)));
  LOCKSTEP_RETURN_IF_ERROR(known_problem());
  const std::string rank = std::to_string(self_.rank);
  auto arrivals = store_.add("arrivals/" + rank, 1);
  if (!arrivals.ok()) return arrivals.status();
  if (*arrivals > 1) return explain_second();
  LOCKSTEP_RETURN_IF_ERROR(store_.set_one("who/" + rank, name_));
  return check_terms();
}

/// Another process has been this rank of this group. Where the group has met, that is nobody's business but
/// this one's: who is slow to see that all are there must not fail for it.
Status RollCall::explain_second() {
  for (const Latest& other : latest_of_missing(store_.whole(), nobody())) {
    if (other.group > store_.number()) return tell_apart(other);
  }
  auto present = who_is_here(milliseconds(0));
  if (!present.ok()) return present.status();
  if (all(*present)) {
    return Status(ErrorCode::configuration, name_ + " comes to a group that has met already, with " +
                                                who(self_.rank, moment()) + kStartedAnew);
  }
  return declare(Status(ErrorCode::configuration,
                        "two processes are rank " + std::to_string(self_.rank) + ": " +
                            who(self_.rank, moment()) + " and " + name_ + "; give every process its own rank",
                        self_.rank));
}

Status RollCall::check_terms() {
  auto readers = store_.add("readers", 1);
  if (!readers.ok()) return readers.status();
  if (*readers == 1) {
    std::string terms;
    WireWriter writer(terms);
    writer.integer(static_cast<std::int32_t>(world_));
    writer.text(secret_mark_);
    writer.text(name_);
    return store_.set_one("terms", terms);
  }
  auto terms = store_.get_one("terms", moment());
  if (!terms.ok()) return terms.status();
  std::int32_t world = 0;
  std::string_view mark, first;
  WireReader reader(as_bytes(*terms));
  if (!reader.integer(world) || !reader.text(kMaxKeyBytes, mark) || !reader.text(kMaxKeyBytes, first)) {
    return Status(ErrorCode::unauthorized, "the group's terms in the store are damaged");
  }
  if (world != world_) {
    return declare(Status(ErrorCode::configuration, "world size differs: " + std::string(first) +
                                                        " was started with " + std::to_string(world) + ", " +
                                                        name_ + " with " + std::to_string(world_) +
                                                        "; start all ranks with the same world size"));
  }
  if (mark == secret_mark_) return Status();
  return declare(Status(ErrorCode::unauthorized, "wrong secret: " + std::string(first) + " and " + name_ +
                                                     " have different secrets; LOCKSTEP_SECRET or "
                                                     "LOCKSTEP_SECRET_FILE must hold the same on all ranks"));
}

Result<std::vector<Member>> RollCall::await_all(const std::function<std::optional<Loss>()>& lost) {
  std::int64_t next_report = kReportEverySeconds;
  for (auto look = kShortestLook;; look = std::min(2 * look, kLongestLook)) {
    auto present = who_is_here(std::min(look, deadline_.left()));
    if (!present.ok()) return present.status();
    LOCKSTEP_RETURN_IF_ERROR(known_problem());
    if (all(*present)) return collect();
    LOCKSTEP_RETURN_IF_ERROR(find_apart(*present));
    if (const auto loss = lost(); loss) return end_by(*loss);
    if (deadline_.passed()) {
      return declare(Status(ErrorCode::timeout,
                            missing_text(*present) + " after " + std::to_string(deadline_.seconds_waited()) +
                                " s; look at the output of what should have started there"));
    }
    if (deadline_.seconds_waited() >= next_report) {
      report_missing(*present, deadline_.seconds_waited());
      next_report += kReportEverySeconds;
    }
  }
}

/// Which ranks are ready, after at most `patience`.
Result<std::vector<bool>> RollCall::who_is_here(milliseconds patience) {
  return store_.wait(member_keys(), patience);
}

/// How long to wait for what another rank is about to set. The store itself may be waited for longer.
milliseconds RollCall::moment() const { return std::min(kLongestMoment, deadline_.left() + kLastMoment / 2); }

std::vector<std::string> RollCall::member_keys() const {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_; ++rank) keys.push_back(member_key(rank));
  return keys;
}

bool RollCall::all_acknowledged() {
  const auto count = store_.add("acknowledged", 0);
  return !count.ok() || count.value() >= world_;
}

// ---- problems --------------------------------------------------------------------------------------------

Status RollCall::declare(const Status& problem) { return declare_in(store_, problem, moment()); }

Status RollCall::known_problem() {
  const std::vector<std::string> keys{std::string(kProblem)};
  auto present = store_.wait(keys, milliseconds(0));
  if (!present.ok()) return present.status();
  if (!present->front()) return Status();
  auto problem = store_.get_one(keys.front(), milliseconds(0));
  return problem.ok() ? decode_problem(*problem) : problem.status();
}

/// A rank that has come to a later group, and was never ready for this one, counts differently: one of the
/// two was started anew.
Status RollCall::find_apart(const std::vector<bool>& present) {
  for (const Latest& other : latest_of_missing(store_.whole(), present)) {
    if (other.group <= store_.number()) continue;
    // It may have been ready a moment after `present` was looked at, and have gone on.
    auto now = who_is_here(milliseconds(0));
    if (now.ok() && now.value()[static_cast<std::size_t>(other.rank)]) continue;
    LOCKSTEP_RETURN_IF_ERROR(known_problem());  // Or have failed, and be at its next try.
    return declare(tell_apart(other));
  }
  return Status();
}

/// What is wrong between this rank and one in a later group, which hears of it if it waits for this rank.
Status RollCall::tell_apart(const Latest& other) {
  const Status problem(ErrorCode::configuration, name_ + " has come to group " +
                                                     std::to_string(store_.number()) +
                                                     " at this rendezvous, " + other.who + " to group " +
                                                     std::to_string(other.group) + kStartedAnew);
  GroupStore theirs = store_.of_group(other.group);
  const std::vector<std::string> self{member_key(self_.rank)};
  const auto here = theirs.wait(self, milliseconds(0));
  if (here.ok() && !here.value().front()) (void)declare_in(theirs, problem, moment());
  return problem;
}

Status RollCall::end_by(const Loss& loss) {
  const std::string name = who(loss.rank, milliseconds(0));  // It may have died before it came.
  return declare(
      Status(ErrorCode::peer_lost, name + " was lost while the ranks met: " + loss.evidence, loss.rank));
}

std::string RollCall::who(int rank, milliseconds patience) {
  auto text = store_.get_one("who/" + std::to_string(rank), patience);
  return text.ok() ? *text : "rank " + std::to_string(rank);
}

// ---- missing ranks ---------------------------------------------------------------------------------------

/// "3 of 4 ranks are here, missing: rank 2 (a connection ... was refused: wrong secret; ...)".
std::string RollCall::missing_text(const std::vector<bool>& present) {
  const auto here = std::count(present.begin(), present.end(), true);
  std::string text = std::to_string(here) + " of " + std::to_string(world_) +
                     (here == 1 ? " ranks is" : " ranks are") + " here, missing: ";
  int named = 0, reasons = 0;
  for (int rank = 0; rank < world_; ++rank) {
    if (present[static_cast<std::size_t>(rank)]) continue;
    if (++named > kRanksNamed) continue;
    text += (named == 1 ? "rank " : ", rank ") + std::to_string(rank);
    if (reasons == kRefusalsNamed) continue;
    if (auto refusal = store_.get_one(refusal_key(rank), milliseconds(0)); refusal.ok()) {
      text += " (" + *refusal + ")";
      ++reasons;
    }
  }
  if (named > kRanksNamed) text += " and " + std::to_string(named - kRanksNamed) + " more";
  return text;
}

void RollCall::report_missing(const std::vector<bool>& present, std::int64_t seconds) {
  // One voice is enough: the lowest rank that is here.
  const auto lowest = std::find(present.begin(), present.end(), true) - present.begin();
  if (lowest != self_.rank) return;
  warn(missing_text(present) + " after " + std::to_string(seconds) + " s" +
       (hint_.empty() ? "" : "; " + hint_));
}

Result<std::vector<Member>> RollCall::collect() {
  auto texts = store_.get(member_keys(), moment());
  if (!texts.ok()) return texts.status();
  std::vector<Member> members;
  for (int rank = 0; rank < world_; ++rank) {
    auto member = decode_member((*texts)[static_cast<std::size_t>(rank)]);
    // Ranks are found by their number.
    if (!member || member->rank != rank) {
      return Status(ErrorCode::unauthorized,
                    "the description of rank " + std::to_string(rank) + " in the store is damaged");
    }
    members.push_back(std::move(*member));
  }
  return members;
}

}  // namespace lockstep::internal
