#include "collectives/engine/domain_run.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "collectives/engine/limits.hpp"
#include "collectives/engine/local_step.hpp"
#include "lib/base/prefetch.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

bool is_revoked(const MemberControl& own) { return own.revoked.load(std::memory_order_seq_cst) != 0; }
Status taken(const Domain& domain) {
  return Status(ErrorCode::aborted,
                "the failure of another communicator made memory private that this call uses", domain.rank());
}
Status revoked() { return Status(ErrorCode::aborted, "the communicator was revoked"); }

}  // namespace

void DomainRun::begin(const DomainChoice& choice, const Buffers& buffers, const Combine& combine,
                      const CallIdentity& identity, const OfferedBuffers& offered) {
  choice_ = choice;
  buffers_ = buffers;
  combine_ = combine;
  combine_.past_caches = choice.past_caches;
  way_ = Way::none;
  readable_ = nullptr;
  begin_again(buffers.input, buffers.output, identity, offered);
}

void DomainRun::begin_again(const void* input, void* output, const CallIdentity& identity,
                            const OfferedBuffers& offered) {
  buffers_.input = static_cast<const std::byte*>(input);
  buffers_.output = static_cast<std::byte*>(output);
  identity_ = identity;
  mine_ = offered;
  agreed_ = entered_ = offered_ = would_pull_ = enqueued_ = false;
  stale_ = Stale::no;
  handing_over_ = kSelf;
  next_ = 0;
  elements_ = 0;
  awaited_ = 0;
}

void DomainRun::enter(DomainPosition position) {
  entered_ = true;
  position_ = position;
  base_ = position.phase;
}

Result<RunProgress> DomainRun::step(Domain& domain, ProgramCache& cache) {
  if (stale_ != Stale::no) return why_stale(domain);
  auto progress = advance(domain, cache);
  // Not kept from step to step: the next one may be long in coming.
  const Status still_theirs = enqueued_ ? Status() : put_down(domain);
  if (progress.ok() && !still_theirs.ok()) return still_theirs;
  return progress;
}

Result<RunProgress> DomainRun::advance(Domain& domain, ProgramCache& cache) {
  RunProgress progress;
  if (!agreed_) {
    auto agreed = agree(domain, cache);
    if (!agreed.ok()) return agreed.status();
    if (!*agreed) return progress;
    progress.moved = true;
  }
  const std::span steps(program_->program.lanes.front().steps);
  while (next_ < steps.size()) {
    const std::uint64_t before = elements_;
    auto complete = run_step(domain, steps[next_]);
    if (!complete.ok()) return complete.status();
    progress.moved |= *complete || elements_ != before;
    if (!*complete) return progress;
    ++next_;
    elements_ = 0;
    awaited_ = 0;
  }
  LOCKSTEP_RETURN_IF_ERROR(complete_enqueued());
  LOCKSTEP_RETURN_IF_ERROR(put_down(domain));
  if (memory_was_taken()) return taken(domain);
  if (choice_.trial != nullptr) choice_.trial->end();
  MemberControl& own = domain.control(domain.rank());
  if (offered_) prefetch_for_write(&own.offer[(position_.calls & 1) ^ 1]);  // Of the next call.
  progress.moved = progress.done = true;
  return progress;
}

/// Before members' memory is used. Declared before the look: a member that revokes sees the declaration and
/// waits, or this rank sees the revoke and touches nothing. Looked at again before each block, so that nobody
/// waits long, however long the message is.
Status DomainRun::take_up(Domain& domain) {
  if (way_ == Way::staged) return {};
  MemberControl& own = domain.control(domain.rank());
  if (!in_use_) own.in_use.store(1, std::memory_order_seq_cst);
  in_use_ = true;
  return is_revoked(own) ? revoked() : Status();
}

/// After it, and before a peer or the caller is told that it is done. A member that has given up may have
/// changed what was read, because it does not wait for ever. It marks this rank before its caller can write.
/// What was read stays before the store, which releases, and the look behind it, since both are seq_cst; so
/// bytes that were read after a caller wrote come with a mark that is seen.
Status DomainRun::put_down(Domain& domain) {
  if (!end_use(domain)) return {};
  const bool was_revoked = is_revoked(domain.control(domain.rank()));
  stale_ = was_revoked ? Stale::revoked : memory_was_taken() ? Stale::taken : Stale::no;
  return why_stale(domain);  // Which may find no memory for its words.
}

Status DomainRun::why_stale(const Domain& domain) const {
  return stale_ == Stale::no ? Status() : stale_ == Stale::taken ? taken(domain) : revoked();
}

/// Whether there was any.
bool DomainRun::end_use(Domain& domain) {
  if (!std::exchange(in_use_, false)) return false;
  domain.control(domain.rank()).in_use.store(0, std::memory_order_seq_cst);
  return true;
}

/// Another communicator's failure made private what this call has offered: its peers work on what was there.
/// Where they only read, that is the same.
bool DomainRun::memory_was_taken() const {
  return way_ == Way::registered && !choice_.registered->only_reads &&
         (is_private(buffers_.input, mine_.input_bytes) || is_private(buffers_.output, mine_.output_bytes));
}

bool DomainRun::pulls(const Step& step) const {
  return way_ == Way::pulled && step.kind == StepKind::copy && step.src.member != kSelf &&
         places_.elsewhere[static_cast<std::size_t>(step.src.member)];
}

Result<bool> DomainRun::run_step(Domain& domain, const Step& step) {
  switch (step.kind) {
    case StepKind::publish:
      LOCKSTEP_RETURN_IF_ERROR(complete_enqueued());
      LOCKSTEP_RETURN_IF_ERROR(put_down(domain));
      publish(domain, base_ + step.phase);
      return true;
    case StepKind::await:
      return await(domain, base_ + step.phase, step.peer);
    default:
      break;
  }
  LOCKSTEP_RETURN_IF_ERROR(take_up(domain));
  if (elements_ == 0) claim_phase(domain);
  if (choice_.memory != nullptr) {
    enqueued_ = true;
    LOCKSTEP_RETURN_IF_ERROR(choice_.memory->run(program_->program, step, buffers_, combine_));
    return true;
  }
  const std::uint64_t total =
      step.kind == StepKind::copy ? step.dst.count : program_->program.slices[step.destinations].count;
  const std::uint64_t left = total - elements_;
  const std::uint64_t block =
      left * buffers_.element <= kReduceBlockBytes ? left : kReduceBlockBytes / buffers_.element;
  if (pulls(step)) {
    const std::size_t skip = elements_ * buffers_.element;
    const auto from = reinterpret_cast<std::uintptr_t>(buffers_.read(step.src)) + skip;
    LOCKSTEP_RETURN_IF_ERROR(
        domain.pull(step.src.member, from, buffers_.write(step.dst) + skip, block * buffers_.element));
  } else {
    run_local_step(program_->program, step, buffers_, combine_, elements_, block);
  }
  elements_ += block;
  return elements_ == total;
}

Status DomainRun::complete_enqueued() {
  return std::exchange(enqueued_, false) ? choice_.memory->complete() : Status();
}

/// A store to a line that peers have read waits until they have lost it. What comes before the next publish
/// takes as long as that.
void DomainRun::claim_phase(Domain& domain) { prefetch_for_write(&domain.control(domain.rank()).phase); }

void DomainRun::publish(Domain& domain, std::uint64_t phase) {
  MemberControl& own = domain.control(domain.rank());
  own.fingerprints[position_.calls % 4].store(identity_.fingerprint, std::memory_order_relaxed);
  own.phase.store(phase, std::memory_order_seq_cst);  // Before the look at the sleepers: see doorbell.hpp.
  domain.ring_sleepers();
}

Result<bool> DomainRun::await(Domain& domain, std::uint64_t phase, int member) {
  const int last = member == kSelf ? domain.size() : member + 1;
  if (member != kSelf) awaited_ = std::max(awaited_, member);
  for (; awaited_ < last; ++awaited_) {
    MemberControl& control = domain.control(awaited_);
    if (awaited_ == domain.rank()) continue;
    if (control.phase.load(std::memory_order_acquire) < phase) return false;
    if (control.fingerprints[position_.calls % 4].load(std::memory_order_relaxed) != identity_.fingerprint)
      return fingerprint_mismatch(awaited_);
  }
  return true;
}

DomainPosition DomainRun::end() const { return {base_ + program_->program.phases, position_.calls + 1}; }

void DomainRun::waiting_for(Domain& domain, std::vector<int>& members) const {
  if (!entered_) return;
  if (!agreed_ && handing_over_ != kSelf) return members.push_back(handing_over_);
  const auto late = [&](MemberControl& control) {
    if (!agreed_)
      return control.offer[position_.calls & 1].call.load(std::memory_order_acquire) <= position_.calls;
    return control.phase.load(std::memory_order_acquire) <
           base_ + program_->program.lanes.front().steps[next_].phase;
  };
  int only = kSelf;
  if (agreed_) {
    if (next_ >= program_->program.lanes.front().steps.size()) return;
    const Step& step = program_->program.lanes.front().steps[next_];
    if (step.kind != StepKind::await) return;
    only = step.peer;
  }
  for (int member = 0; member < domain.size(); ++member) {
    const bool asked = only == kSelf ? member != domain.rank() : member == only;
    if (asked && late(domain.control(member))) members.push_back(member);
  }
}

Exposure DomainRun::exposure() const {
  if (agreed_ ? way_ == Way::staged : !offered_) return Exposure::none;
  const bool registered = agreed_ ? way_ == Way::registered : may_be_registered();
  if (registered && !choice_.registered->only_reads) return Exposure::to_writers;
  const bool pulled = agreed_ ? way_ == Way::pulled : would_pull_ && addressable(mine_.input);
  return registered || pulled ? Exposure::to_readers : Exposure::none;
}

bool DomainRun::waits_idly() const {
  if (!agreed_) return offered_;  // For all offers.
  const Program& program = program_->program;
  return program.phases > 1 && next_ > 0 && program.lanes.front().steps[next_ - 1].kind == StepKind::publish;
}

/// Says nothing, and needs no memory for it.
void DomainRun::abandon(Domain& domain) {
  try {
    static_cast<void>(complete_enqueued());
  } catch (const std::bad_alloc&) {
  }
  end_use(domain);
  program_.reset();
  way_ = Way::none;
  agreed_ = offered_ = false;
}

}  // namespace lockstep::internal
