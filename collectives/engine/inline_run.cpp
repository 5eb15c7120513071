// The shortest all_reduce and the barrier: every rank writes its payload into the cache line of its flag, and
// reads everyone's. What is longer continues in further lines with a flag each, so that a reader waits for
// each line once, not for a flag and then for the lines behind it. Two sets of lines used alternately need no
// acknowledgement: a rank writes set k mod 2 again for call k + 2 only after it saw every flag of call k + 1,
// and a peer raises those only after it has read every line of call k (tests/model/one_shot.pml and
// several_lines.pml).
#include "collectives/engine/inline_run.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/engine/call_identity.hpp"
#include "collectives/engine/limits.hpp"
#include "lib/base/prefetch.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {
namespace {

/// A payload of several lines, in one piece.
void gather(const MemberControl& control, std::size_t turn, std::byte* to, std::size_t tails) {
  std::memcpy(to, control.inline_line[turn].payload, kInlinePayload);
  for (std::size_t i = 0; i < tails; ++i)
    std::memcpy(to + kInlinePayload + i * kTailPayload, control.inline_tails[turn][i].payload, kTailPayload);
}

}  // namespace

void InlineRun::begin(const InlineCall& call, std::uint64_t fingerprint, std::uint64_t number) {
  call_ = call;
  fingerprint_ = fingerprint;
  number_ = number;
  bytes_ = call.facts.count * size_of(call.facts.type);
  tails_ = bytes_ <= kInlinePayload ? 0 : (bytes_ - kInlinePayload + kTailPayload - 1) / kTailPayload;
  written_ = false;
  seen_ = 0;
  seen_tails_ = 0;
}

/// Each line's flag after its payload. The last one in the order of all: see doorbell.hpp.
void InlineRun::write(Domain& domain) {
  MemberControl& own = domain.control(domain.rank());
  InlineLine& head = own.inline_line[number_ & 1];
  const auto* from = static_cast<const std::byte*>(call_.input);
  const std::size_t first = std::min(bytes_, kInlinePayload);
  if (first > 0) std::memcpy(head.payload, from, first);
  head.fingerprint = fingerprint_;
  std::atomic<std::uint64_t>* flag = &head.flag;
  std::size_t left = bytes_ - first;
  from += first;
  for (std::size_t i = 0; i < tails_; ++i) {
    flag->store(number_ + 1, std::memory_order_release);
    InlineTail& tail = own.inline_tails[number_ & 1][i];
    if (left > kTailPayload) {
      std::memcpy(tail.payload, from, kTailPayload);  // Of a length that the compiler knows.
      left -= kTailPayload;
      from += kTailPayload;
    } else {
      std::memcpy(tail.payload, from, left);
    }
    flag = &tail.flag;
  }
  flag->store(number_ + 1, std::memory_order_seq_cst);
  domain.ring_sleepers();
}

bool InlineRun::tails_are_here(MemberControl& control) {
  for (; seen_tails_ < tails_; ++seen_tails_) {
    const InlineTail& tail = control.inline_tails[number_ & 1][seen_tails_];
    if (tail.flag.load(std::memory_order_acquire) < number_ + 1) return false;
  }
  seen_tails_ = 0;
  return true;
}

Result<RunProgress> InlineRun::step(Domain& domain) {
  RunProgress progress;
  if (!written_) {
    write(domain);
    written_ = progress.moved = true;
  }
  const std::size_t turn = number_ & 1;
  for (; seen_ < domain.size(); ++seen_) {
    MemberControl& control = domain.control(seen_);
    const InlineLine& line = control.inline_line[turn];
    if (line.flag.load(std::memory_order_acquire) < number_ + 1) return progress;
    if (line.fingerprint != fingerprint_) return fingerprint_mismatch(seen_);
    if (tails_ > 0 && !tails_are_here(control)) return progress;
    progress.moved = true;
  }
  if (tails_ > 0) {
    reduce_long_payloads(domain);
  } else if (bytes_ > 0) {
    reduce_payloads(domain);
  }
  prefetch_for_write(&domain.control(domain.rank()).inline_line[turn ^ 1]);
  progress.moved = progress.done = true;
  return progress;
}

void InlineRun::reduce_payloads(Domain& domain) const {
  const void* sources[kMaxInlineMembers];
  const int members = domain.size();
  for (int member = 0; member < members; ++member)
    sources[member] = domain.control(member).inline_line[number_ & 1].payload;
  reduce_from({sources, static_cast<std::size_t>(members)});
}

void InlineRun::reduce_long_payloads(Domain& domain) const {
  alignas(64) std::byte gathered[kMaxLongInlineMembers][kLongInlinePayload];
  const void* sources[kMaxLongInlineMembers];
  const int members = domain.size();
  for (int member = 0; member < members; ++member) {
    sources[member] = member == domain.rank() ? call_.input : gathered[member];
    if (member != domain.rank()) gather(domain.control(member), number_ & 1, gathered[member], tails_);
  }
  reduce_from({sources, static_cast<std::size_t>(members)});
}

void InlineRun::reduce_from(std::span<const void* const> sources) const {
  const Reduction reduction{.type = call_.facts.type,
                            .op = call_.facts.op,
                            .user = call_.user,
                            .count = call_.facts.count,
                            .divisor = static_cast<double>(sources.size())};
  reduce(reduction, sources, {&call_.output, 1});
}

void InlineRun::waiting_for(Domain& domain, std::vector<int>& members) const {
  const std::size_t turn = number_ & 1;
  for (int member = 0; member < domain.size(); ++member) {
    const MemberControl& control = domain.control(member);
    const auto& last =
        tails_ > 0 ? control.inline_tails[turn][tails_ - 1].flag : control.inline_line[turn].flag;
    if (last.load(std::memory_order_acquire) < number_ + 1) members.push_back(member);
  }
}

}  // namespace lockstep::internal
