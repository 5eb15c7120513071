// InlineRun: the shortest form of a collective in shared memory, payload inside the flags' lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/engine/run_progress.hpp"
#include "lib/base/status.hpp"
#include "lockstep/types.hpp"
#include "transports/domain.hpp"

namespace lockstep::internal {

/// An all_reduce or a barrier as far as the flags' lines are concerned. `user`: for ReduceOp::user.
struct InlineCall {
  CallFacts facts;
  const void* input = nullptr;
  void* output = nullptr;
  const UserOp* user = nullptr;
};

class InlineRun {
 public:
  /// The domain's `number`-th call of this kind.
  void begin(const InlineCall& call, std::uint64_t fingerprint, std::uint64_t number);
  Result<RunProgress> step(Domain& domain);
  void waiting_for(Domain& domain, std::vector<int>& members) const;

 private:
  void write(Domain& domain);
  bool tails_are_here(MemberControl& control);
  void reduce_payloads(Domain& domain) const;
  void reduce_long_payloads(Domain& domain) const;
  void reduce_from(std::span<const void* const> sources) const;

  InlineCall call_;
  std::uint64_t fingerprint_ = 0, number_ = 0;
  std::size_t bytes_ = 0, tails_ = 0;  // Of the payload, and the lines behind the first that it takes.
  bool written_ = false;
  int seen_ = 0;                // Members whose lines have all come.
  std::size_t seen_tails_ = 0;  // Of the next one.
};

}  // namespace lockstep::internal
