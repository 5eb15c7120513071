#include "tests/transports/failing_allocations.hpp"

#include <cstdlib>
#include <new>

namespace {

thread_local int t_allowed = -1;  // Below 0: as often as there is memory.

}  // namespace

namespace lockstep::internal::testing {

FailingAllocations::FailingAllocations(int allowed) { t_allowed = allowed; }
FailingAllocations::~FailingAllocations() { t_allowed = -1; }

}  // namespace lockstep::internal::testing

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (t_allowed == 0) return nullptr;
  if (t_allowed > 0) --t_allowed;
  return std::malloc(bytes);
}
void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
