// A hint to the processor, for flags that peers read and this rank writes in turn.
#pragma once

namespace lockstep::internal {

/// The line of `place` will be written soon. It is claimed from the peers that read it last while this rank
/// still does something else, and the write finds it here. Writing works the same without.
inline void prefetch_for_write(const void* place) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(place)));  // The builtin only reads ahead here.
#else
  __builtin_prefetch(place, 1);
#endif
}

}  // namespace lockstep::internal
