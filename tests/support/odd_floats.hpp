// OddFloats: a thread whose arithmetic flushes subnormals and rounds toward zero, for the length of a scope.
#pragma once

#include <cfenv>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::testing {

class OddFloats {
 public:
  OddFloats() {
    std::fegetenv(&before_);
    std::fesetround(FE_TOWARDZERO);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#else
    unsigned long mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    asm volatile("msr fpcr, %0" : : "r"(mode | 1ul << 24));
#endif
  }
  ~OddFloats() { std::fesetenv(&before_); }
  OddFloats(const OddFloats&) = delete;
  OddFloats& operator=(const OddFloats&) = delete;

  /// Whether the thread is in this mode, by what it computes.
  static bool here() {
    volatile float least = 1e-40f, one = 1, little = 1e-8f;
    return least * 1 == 0 && one - little < 1;
  }

 private:
  std::fenv_t before_;
};

}  // namespace lockstep::testing
