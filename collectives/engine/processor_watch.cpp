#include "collectives/engine/processor_watch.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>

#include "collectives/engine/domain_run.hpp"

namespace lockstep::internal {
namespace {

constexpr std::uint32_t kUnknown = 0;

}  // namespace

ProcessorWatch::ProcessorWatch(Domain* domain, int rank, int size)
    : domain_(domain), rank_(rank), size_(size) {
  late_.reserve(static_cast<std::size_t>(size));
}

/// Tells the others where this rank runs.
std::uint32_t ProcessorWatch::note() {
  const auto here = static_cast<std::uint32_t>(sched_getcpu() + 1);
  std::atomic<std::uint32_t>& own = domain_->control(rank_).processor;
  if (own.load(std::memory_order_relaxed) != here) own.store(here, std::memory_order_relaxed);
  return here;
}

std::uint32_t ProcessorWatch::last_seen(int member) const {
  return domain_->control(member).processor.load(std::memory_order_relaxed);
}

bool ProcessorWatch::is_shared() {
  if (domain_ == nullptr) return false;
  const std::uint32_t here = note();
  for (int member = 0; member < size_; ++member) {
    if (member != rank_ && last_seen(member) == here) return true;
  }
  return false;
}

bool ProcessorWatch::may_be_kept(const DomainRun* run) {
  if (run == nullptr || !run->waits_idly()) return false;
  late_.clear();
  run->waiting_for(*domain_, late_);
  const std::uint32_t here = note();
  return std::none_of(late_.begin(), late_.end(), [&](int member) {
    const std::uint32_t there = last_seen(member);
    return there == here || there == kUnknown;
  });
}

}  // namespace lockstep::internal
