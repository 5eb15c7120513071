// The shortest all_reduce and the barrier: every rank writes its payload into the cache line of its flag, and
// reads everyone's. Two lines used alternately need no acknowledgement: a rank writes line k mod 2 again for
// call k + 2 only after it saw every flag of call k + 1, and a peer raises that only after it has read every
// line of call k (tests/model/one_shot.pml).
#include <cstring>

#include "collectives/engine/domain_run.hpp"
#include "collectives/engine/limits.hpp"
#include "lib/base/prefetch.hpp"

namespace lockstep::internal {

void InlineRun::begin(const Buffers& buffers, const Combine& combine, std::uint64_t count,
                      const CallIdentity& identity, std::uint64_t call) {
  buffers_ = buffers;
  combine_ = combine;
  count_ = count;
  identity_ = identity;
  call_ = call;
  written_ = false;
  seen_ = 0;
}

Result<RunProgress> InlineRun::step(Domain& domain) {
  RunProgress progress;
  const std::size_t bytes = count_ * buffers_.element;
  if (!written_) {
    InlineLine& own = domain.control(domain.rank()).inline_line[call_ & 1];
    if (bytes > 0) std::memcpy(own.payload, buffers_.input, bytes);
    own.fingerprint = identity_.fingerprint;
    own.flag.store(call_ + 1, std::memory_order_seq_cst);
    ring_sleepers(domain);
    written_ = progress.moved = true;
  }
  for (; seen_ < domain.size(); ++seen_) {
    const InlineLine& line = domain.control(seen_).inline_line[call_ & 1];
    if (line.flag.load(std::memory_order_acquire) < call_ + 1) return progress;
    if (line.fingerprint != identity_.fingerprint) return fingerprint_mismatch(seen_);
    progress.moved = true;
  }
  if (bytes > 0) {
    const void* sources[kMaxInlineMembers];
    for (int member = 0; member < domain.size(); ++member)
      sources[member] = domain.control(member).inline_line[call_ & 1].payload;
    void* output = buffers_.output;
    reduce(combine_.reduction(count_, true), {sources, static_cast<std::size_t>(domain.size())},
           {&output, 1});
  }
  prefetch_for_write(&domain.control(domain.rank()).inline_line[(call_ + 1) & 1]);
  progress.moved = progress.done = true;
  return progress;
}

void InlineRun::waiting_for(Domain& domain, std::vector<int>& members) const {
  for (int member = 0; member < domain.size(); ++member) {
    if (domain.control(member).inline_line[call_ & 1].flag.load(std::memory_order_acquire) < call_ + 1)
      members.push_back(member);
  }
}

}  // namespace lockstep::internal
