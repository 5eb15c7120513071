#include "transports/sim/sim_domain.hpp"

#include <new>
#include <string>

namespace lockstep::internal {

SimDomainMemory::SimDomainMemory(int members)
    : controls_(static_cast<std::size_t>(members)),
      ring_due_(static_cast<std::size_t>(members)),
      staging_(static_cast<std::byte*>(
          std::aligned_alloc(kLine, static_cast<std::size_t>(members) * kStagingBytes))) {
  if (!staging_) throw std::bad_alloc();
  // A simulated rank sleeps between its steps, so whoever publishes has to ring.
  for (MemberControl& control : controls_) control.doorbell.asleep.store(1, std::memory_order_relaxed);
}

std::vector<MemberControl*> SimDomainMemory::controls() {
  std::vector<MemberControl*> all;
  for (MemberControl& control : controls_) all.push_back(&control);
  return all;
}

Result<std::byte*> SimDomain::resolve(int member, const SegmentRef& ref, std::size_t bytes) {
  if (std::byte* address = own_address(ref, bytes)) return address;
  return Status(ErrorCode::internal,
                "rank " + std::to_string(member) + " offers memory that is not registered in this process",
                member);
}

void SimDomain::ring(int member) {
  Nanos& due = memory_.ring_due(member);
  if (due > schedule_.now()) return;
  due = schedule_.now() + delay_.draw(schedule_.random());
  schedule_.wake(members_[static_cast<std::size_t>(member)], due);
}

}  // namespace lockstep::internal
