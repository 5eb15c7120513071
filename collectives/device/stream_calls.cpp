#include "collectives/device/stream_calls.hpp"

#include <array>
#include <bit>
#include <utility>

#include "collectives/device/message_plan.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

/// Calls on streams have records of their own beside those of the engine.
constexpr std::uint64_t kFirstSequence = std::uint64_t{1} << 40;

/// A rank that told nothing for so long is not about to: it would fifty times (kLookEvery).
constexpr Nanos kSilent = 500'000'000;

bool is_silent(const MemberControl& told, Nanos now) {
  const Nanos looked = told.looked_at.load(std::memory_order_acquire);
  return looked != 0 && now - looked > kSilent;
}

bool has_told(const std::atomic<std::uint64_t>& told, const DeviceTask& task) {
  return told.load(std::memory_order_acquire) >= task.noted.sequence + 1;
}

/// "#12"
std::string place_of(std::uint64_t sequence) { return "#" + std::to_string(sequence - kFirstSequence); }

/// The calls differ in nothing but where their buffers lie.
bool is_elsewhere(CallFacts theirs, CallFacts mine, const CallFacts& call) {
  const bool counted = call.extra != 0;  // v-variants: their counts may be what differs.
  theirs.extra = mine.extra = 0;
  return !counted && theirs == mine;
}

}  // namespace

std::string name_of(const DeviceTask& task, int peer) {
  return task.call ? internal::describe(task.call->call().facts) : internal::describe(task.messages, peer);
}

/// Where a member tells what it called; null in a group that has no domain, as one of one.
MemberControl* StreamCalls::told_by(int member) const {
  Transport* const transport = engine_.transport();
  Domain* const domain = transport != nullptr ? transport->domain() : nullptr;
  return domain != nullptr ? &domain->control(member) : nullptr;
}

/// Ranks that name other places of their windows would read and write each other's wrong memory.
CallFacts StreamCalls::facts_of(const Call& call) const {
  CallFacts facts = call.facts;
  if (const auto use = windows_.find(call)) facts.extra = hash_combine(facts.extra, use->places);
  return facts;
}

/// With a hash of the calls before: what differs is found also when callers are so far ahead of their streams
/// that its record is gone.
StreamCall StreamCalls::note(const Call& call) {
  const StreamCall noted{kFirstSequence + calls_++, facts_of(call), history_};
  if (MemberControl* const own = told_by(engine_.group().rank)) {
    const std::uint64_t place = noted.sequence % kRecentCalls;
    own->recent[place].clear();
    own->before[place].store(noted.history, std::memory_order_release);
    own->recent[place].write(noted.sequence, noted.facts);
  }
  using Words = std::array<std::uint64_t, CallRecord::kWords>;
  for (const std::uint64_t word : std::bit_cast<Words>(noted.facts)) history_ = hash_combine(history_, word);
  return noted;
}

void StreamCalls::tell(const DeviceTask& task, std::atomic<std::uint64_t> MemberControl::*what) {
  MemberControl* const own = task.call ? told_by(engine_.group().rank) : nullptr;
  if (own != nullptr) (own->*what).store(task.noted.sequence + 1, std::memory_order_release);
}

/// Of several, the first stands for all.
void StreamCalls::tell_awaited(std::vector<int> ranks) {
  awaited_ = std::move(ranks);
  const std::uint32_t word = awaited_.empty() ? 0 : static_cast<std::uint32_t>(awaited_.front()) + 1;
  if (MemberControl* const own = told_by(engine_.group().rank))
    own->awaited.store(word, std::memory_order_release);
}

void StreamCalls::tell_carried(const DeviceTask& task) {
  tell(task, &MemberControl::carried);
  tell_awaited({});
}

void StreamCalls::tell_looked(Nanos now) {
  if (MemberControl* const own = told_by(engine_.group().rank))
    own->looked_at.store(now, std::memory_order_release);
}

bool StreamCalls::has_left(int member) const {
  const MemberControl* const told = told_by(member);
  return told != nullptr && told->left.load(std::memory_order_acquire) != 0;
}

Status StreamCalls::compare(const DeviceTask& task) const {
  const StreamCall& mine = task.noted;
  const std::uint64_t place = mine.sequence % kRecentCalls;
  for (int member = 0; member < engine_.group().size(); ++member) {
    const MemberControl* const told = told_by(member);
    if (told == nullptr) continue;
    const CallRecord& record = told->recent[place];
    if (record.read_beside(mine.sequence, told->before[place]).value_or(mine.history) != mine.history)
      return Status(ErrorCode::mismatch,
                    "lockstep: an operation before " + place_of(mine.sequence) + " differs between " +
                        engine_.who(member) + " and " + engine_.who(engine_.group().rank) +
                        "; which is known of the last " + std::to_string(kRecentCalls) + " only",
                    member);
    if (has_left(member) && !record.has_come_to(mine.sequence))
      return Status(ErrorCode::peer_lost,
                    "lockstep: " + engine_.who(member) + " left before its operation " +
                        place_of(mine.sequence) + ", " + name_of(task),
                    member);
    const auto theirs = record.read(mine.sequence);
    if (theirs && *theirs != mine.facts) return differs(task, member, *theirs);
  }
  return {};
}

Status StreamCalls::differs(const DeviceTask& task, int member, const CallFacts& theirs) const {
  const std::string them = engine_.who(member), self = engine_.who(engine_.group().rank);
  const StreamCall& mine = task.noted;
  if (is_elsewhere(theirs, mine.facts, task.call->call().facts))
    return Status(ErrorCode::mismatch,
                  "lockstep: " + them + " and " + self + " called " + name_of(task) +
                      " on different places of their windows: register_window was promised the same",
                  member);
  const std::string there = internal::describe(theirs);
  std::string here = name_of(task);
  if (here == there) here = "the same with other counts";  // The one fact that a description leaves out.
  return Status(ErrorCode::mismatch,
                "lockstep: operation " + place_of(mine.sequence) + " differs: " + them + " called " + there +
                    ", but " + self + " called " + here,
                member);
}

std::string StreamCalls::who_has_not_come(const DeviceTask& task) const {
  const std::uint64_t sequence = task.noted.sequence;
  std::string who;
  for (int member = 0; task.call && member < engine_.group().size(); ++member) {
    const MemberControl* const told = told_by(member);
    if (told == nullptr) continue;
    if (!told->recent[sequence % kRecentCalls].has_come_to(sequence))
      who += "; " + engine_.who(member) + " has not made it";
    else if (member != engine_.group().rank && !has_told(told->reached, task))
      who += "; " + engine_.who(member) + " has made it, but its stream has not come to it";
  }
  return who;
}

/// What `words` tell of those beside this rank that are not through with the task.
template <typename Words>
std::string StreamCalls::of_peers(const DeviceTask& task, const Words& words) const {
  std::string who;
  for (int member = 0; task.call && member < engine_.group().size(); ++member) {
    const MemberControl* const told = told_by(member);
    if (told == nullptr || member == engine_.group().rank) continue;
    if (has_told(task.watched != nullptr ? told->passed : told->carried, task)) continue;
    if (const std::string text = words(*told); !text.empty()) who += "; " + engine_.who(member) + text;
  }
  return who;
}

/// Others wait for these: what a stopped process told last may be over. A thread that passes on messages
/// tells nothing meanwhile.
std::string StreamCalls::who_keeps_it(const DeviceTask& task, Nanos now) const {
  if (task.call && passes_as_messages(task.call->call().facts.collective)) return {};
  return of_peers(task, [&](const MemberControl& told) -> std::string {
    if (is_silent(told, now))
      return " has come to it, but tells nothing for " +
             std::to_string((now - told.looked_at.load(std::memory_order_acquire)) / 1'000'000) +
             " ms: it may be stopped";
    const bool is_enqueued = task.watched == nullptr || has_told(told.enqueued, task);
    return is_enqueued ? "" : " has come to it, but has yet to enqueue some of it";
  });
}

/// What this rank knows itself, and of those beside it what they told. They are no less late for what they
/// wait for, but then not by themselves.
std::string StreamCalls::who_waits_between_hosts(const DeviceTask& task, Nanos now) const {
  std::string who;
  if (task.watched != nullptr && !task.watched->hosts) return who;
  if (!awaited_.empty()) who = "; it waits for " + all_.who(awaited_);
  return who + of_peers(task, [&](const MemberControl& told) -> std::string {
           if (has_told(told.carried, task) || is_silent(told, now)) return {};
           const std::uint32_t awaited = told.awaited.load(std::memory_order_acquire);
           const bool waits = awaited > 0 && awaited <= static_cast<std::uint32_t>(all_.size());
           return waits ? " waits for " + all_.who(static_cast<int>(awaited) - 1)
                        : " has come to it, but has not done its part between the hosts";
         });
}

/// Where all that could be waited for elsewhere is done.
std::string StreamCalls::who_has_not_passed(const DeviceTask& task) const {
  if (!task.call) return "; whom it waits for is not known here";
  const std::string who =
      of_peers(task, [](const MemberControl&) { return std::string(" has not come to its end either"); });
  return who.empty() ? "; it waits for nobody but " + engine_.who(engine_.group().rank) + " itself" : who;
}

Status StreamCalls::late(const DeviceTask& task, int awaited, Nanos now) const {
  std::string who = who_has_not_come(task);
  if (who.empty()) {
    who = who_keeps_it(task, now);
    if (awaited >= 0) who += "; it waited for " + engine_.who(awaited);
    who += who_waits_between_hosts(task, now);
  }
  if (who.empty()) who = who_has_not_passed(task);
  return Status(ErrorCode::timeout, "lockstep: the deadline of " + std::to_string(task.timeout / 1'000'000) +
                                        " ms for " + name_of(task) + " passed" + who);
}

}  // namespace lockstep::internal
