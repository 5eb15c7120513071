#include "collectives/engine/quiescence.hpp"

#include <new>

#include "collectives/engine/limits.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

/// `reason`, and whether peers may still write to the output.
Status take_from_peers(void* output, std::size_t bytes, const Status& reason) try {
  const Status taken = make_private(output, bytes);
  if (taken.ok()) return reason;
  return Status(reason.code(),
                reason.message() +
                    "; a peer that does not answer may still write to the output, which could not "
                    "be taken from it: " +
                    taken.message(),
                reason.culprit());
} catch (const std::bad_alloc&) {
  return reason;
}

}  // namespace

Quiescence::Quiescence(const EngineGroup& group, Transport* transport, const DomainMemory* memory, Env& env,
                       bool awaited)
    : group_(group),
      transport_(transport),
      domain_(transport != nullptr ? transport->domain() : nullptr),
      memory_(memory),
      env_(env),
      awaited_(awaited) {}

void Quiescence::begin() { until_ = env_.now() + kQuiesceWait; }

/// Peers that have heard of the revoke await and send nothing more, so they are told meanwhile.
bool Quiescence::withdraw(const std::vector<bool>& lost) {
  for (; transport_ != nullptr && withdrawn_ < group_.size(); ++withdrawn_) {
    if (withdrawn_ == group_.rank) continue;
    const bool force = lost[static_cast<std::size_t>(withdrawn_)] || env_.now() >= until_;
    try {
      if (!transport_->withdraw(withdrawn_, force)) return false;
    } catch (const std::bad_alloc&) {  // What is under way can end without.
    }
  }
  return true;
}

/// A peer uses this rank's memory only when it has seen its offer and everybody's, has then raised `in_use`,
/// and has then found its own `revoked` down. All `revoked` are up by now (DomainRevoke). Of these
/// stores and loads all ranks see one order: either the peer's declaration came before its mark, and is seen
/// here until it has stopped; or the peer finds its mark and touches nothing. Whether this rank has seen the
/// other offers itself does not matter, so it is exposed from its own on (tests/model/revoke.pml). Another
/// process whose declaration stays up has ended, or finds the output no longer its own; what it reads, it
/// takes for no result. That it was reported lost says nothing: it may only have lost its connection to the
/// job. A thread of this process cannot be kept from anything, and is never stopped alone: it is awaited to
/// the end of its block, or of the user's operator where its algorithm was insisted on.
bool Quiescence::is_quiet(Operation& operation) {
  if (!exposure_) exposure_ = operation.domain_run.exposure();
  operation.domain_run.abandon(*domain_);
  for (int member = 0; awaited_ && member < domain_->size(); ++member) {
    if (is_awaited(member) && is_used_by(member) && (is_thread(member) || env_.now() < until_)) return false;
  }
  return true;
}

Status Quiescence::end_of(const Operation& operation, const Status& reason) {
  bool others_are_quiet = true;
  for (int member = 0; awaited_ && member < domain_->size(); ++member)
    others_are_quiet &= !is_awaited(member) || is_thread(member) || !is_used_by(member);
  exposure_.reset();
  const std::size_t bytes = operation.call.output_elements * size_of(operation.call.facts.type);
  if (others_are_quiet || memory_ != nullptr || bytes == 0) return reason;
  return take_from_peers(operation.call.output, bytes, reason);
}

/// Whether what `member` does counts, of an operation that is exposed as exposure_ says.
bool Quiescence::is_awaited(int member) const {
  return exposure_ == Exposure::to_writers || (exposure_ == Exposure::to_readers && is_thread(member));
}

/// On a device kernels look at the revoke themselves before they write.
bool Quiescence::is_thread(int member) const {
  return memory_ == nullptr && group_.members[static_cast<std::size_t>(member)].process == process_token();
}

bool Quiescence::is_used_by(int member) const {
  return domain_->control(member).in_use.load(std::memory_order_seq_cst) != 0 &&
         !has_ended(group_.members[static_cast<std::size_t>(member)]);
}

}  // namespace lockstep::internal
