// The shortest all_reduce and the barrier: every rank writes its payload into the cache line of its flag, and
// reads everyone's. Two lines used alternately need no acknowledgement: a rank writes line k mod 2 again for
// call k + 2 only after it saw every flag of call k + 1, and a peer raises that only after it has read every
// line of call k (tests/model/one_shot.pml).
#include <cstring>

#include "collectives/engine/domain_run.hpp"
#include "collectives/engine/limits.hpp"
#include "lib/base/prefetch.hpp"

namespace lockstep::internal {

void InlineRun::begin(const InlineCall& call, std::uint64_t fingerprint, std::uint64_t number) {
  call_ = call;
  fingerprint_ = fingerprint;
  number_ = number;
  written_ = false;
  seen_ = 0;
}

Result<RunProgress> InlineRun::step(Domain& domain) {
  RunProgress progress;
  const std::size_t turn = number_ & 1;
  if (!written_) {
    InlineLine& own = domain.control(domain.rank()).inline_line[turn];
    if (call_.facts.count > 0)
      std::memcpy(own.payload, call_.input, call_.facts.count * size_of(call_.facts.type));
    own.fingerprint = fingerprint_;
    own.flag.store(number_ + 1, std::memory_order_seq_cst);
    ring_sleepers(domain);
    written_ = progress.moved = true;
  }
  for (; seen_ < domain.size(); ++seen_) {
    const InlineLine& line = domain.control(seen_).inline_line[turn];
    if (line.flag.load(std::memory_order_acquire) < number_ + 1) return progress;
    if (line.fingerprint != fingerprint_) return fingerprint_mismatch(seen_);
    progress.moved = true;
  }
  if (call_.facts.count > 0) reduce_payloads(domain);
  prefetch_for_write(&domain.control(domain.rank()).inline_line[turn ^ 1]);
  progress.moved = progress.done = true;
  return progress;
}

void InlineRun::reduce_payloads(Domain& domain) const {
  const void* sources[kMaxInlineMembers];
  const int members = domain.size();
  for (int member = 0; member < members; ++member)
    sources[member] = domain.control(member).inline_line[number_ & 1].payload;
  const Reduction reduction{.type = call_.facts.type,
                            .op = call_.facts.op,
                            .user = call_.user,
                            .count = call_.facts.count,
                            .divisor = static_cast<std::uint32_t>(members)};
  reduce(reduction, {sources, static_cast<std::size_t>(members)}, {&call_.output, 1});
}

void InlineRun::waiting_for(Domain& domain, std::vector<int>& members) const {
  for (int member = 0; member < domain.size(); ++member) {
    if (domain.control(member).inline_line[number_ & 1].flag.load(std::memory_order_acquire) < number_ + 1)
      members.push_back(member);
  }
}

}  // namespace lockstep::internal
