// A simulated domain: plain heap memory for each member, visible to all at once because all of them run in
// one thread. What the seed decides is the order in which members are stepped: every ring arrives after a
// delay.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "transports/domain.hpp"
#include "transports/sim/sim_env.hpp"

namespace lockstep::internal {

/// The memory of all members, who are declared asleep for good. Controls are zeroed; pages of staging cost
/// nothing until they are touched.
class SimDomainMemory {
 public:
  explicit SimDomainMemory(int members);
  std::vector<MemberControl*> controls();
  /// When the last ring of `member` arrives. Until then another one would tell it nothing new.
  Nanos& ring_due(int member) { return ring_due_[static_cast<std::size_t>(member)]; }
  std::byte* staging(int member) { return staging_.get() + static_cast<std::size_t>(member) * kStagingBytes; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };
  std::vector<MemberControl> controls_;
  std::vector<Nanos> ring_due_;
  std::unique_ptr<std::byte, Free> staging_;
};

/// One member's view. Ringing a member steps it.
class SimDomain final : public Domain {
 public:
  /// `members[m]` is the schedule's rank of member m. All references outlive the domain.
  SimDomain(SimSchedule& schedule, SimDomainMemory& memory, const std::vector<int>& members, SimDelay delay,
            int rank)
      : Domain(rank, memory.controls()),
        schedule_(schedule),
        memory_(memory),
        members_(members),
        delay_(delay) {}

  std::byte* staging(int member) override { return memory_.staging(member); }
  Result<std::byte*> resolve(int member, const SegmentRef& ref, std::size_t bytes) override;
  void ring(int member) override;
  int bell_fd() override { return -1; }

 private:
  SimSchedule& schedule_;
  SimDomainMemory& memory_;
  const std::vector<int>& members_;
  SimDelay delay_;
};

}  // namespace lockstep::internal
