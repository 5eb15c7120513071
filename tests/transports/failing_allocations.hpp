// An operator new that finds no memory when a test wants it so.
#pragma once

namespace lockstep::internal::testing {

/// While it lives this thread gets memory `allowed` times, and then no more.
class FailingAllocations {
 public:
  explicit FailingAllocations(int allowed);
  ~FailingAllocations();
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
};

}  // namespace lockstep::internal::testing
