// ProcessorWatch: which ranks of a domain share a processor with this one.
#pragma once

#include <cstdint>
#include <vector>

#include "transports/domain.hpp"

namespace lockstep::internal {

class DomainRun;

/// Ranks tell each other in shared memory where they run. An outdated answer costs a few yields. Not
/// thread-safe (the engine's lock guards it).
class ProcessorWatch {
 public:
  /// Without a domain nobody does.
  ProcessorWatch(Domain* domain, int rank, int size);

  /// Whether a peer was last seen on this very processor: then it needs this one's turn, however many cores
  /// are idle.
  bool is_shared();
  /// Whether of those that `run` waits for only ranks on other processors are late, and nobody on this one
  /// has anything to do before they come: a turn for each of them would only delay what this rank does then.
  bool may_be_kept(const DomainRun* run);

 private:
  std::uint32_t note();
  std::uint32_t last_seen(int member) const;

  Domain* const domain_;
  const int rank_, size_;
  std::vector<int> late_;  // For may_be_kept(), which never allocates.
};

}  // namespace lockstep::internal
