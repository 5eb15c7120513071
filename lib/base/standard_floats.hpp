// StandardFloats: the arithmetic of IEEE 754 for the length of a scope, whatever mode a thread is in.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::internal {

/// Rounds to nearest, keeps subnormals and traps nothing, in this scope and on this thread; then as before.
/// Results that several ranks compute must have equal bits, but a program may flush subnormals on one thread
/// of one rank (PyTorch's set_flush_denormal, or a library that was built with -ffast-math and loaded late),
/// and the same operation may run on the program's thread here and on the library's there. To ask costs some
/// cycles, to change some ten, which only threads in another mode pay.
class StandardFloats {
 public:
  StandardFloats() noexcept : before_(mode()) {
    if (!is_standard()) set_mode(kStandard);
  }
  ~StandardFloats() {
    if (!is_standard()) set_mode(before_);
  }
  StandardFloats(const StandardFloats&) = delete;
  StandardFloats& operator=(const StandardFloats&) = delete;

 private:
  bool is_standard() const noexcept { return (before_ & kControl) == kStandard; }

#if defined(__x86_64__)
  using Mode = std::uint32_t;
  static constexpr Mode kStandard = 0x1f80;  ///< Of MXCSR: all exceptions masked.
  static constexpr Mode kControl = 0xffc0;   ///< All but the flags of what has happened.
  static Mode mode() noexcept { return _mm_getcsr(); }
  static void set_mode(Mode mode) noexcept { _mm_setcsr(mode); }
#elif defined(__aarch64__)
  using Mode = std::uint64_t;
  static constexpr Mode kStandard = 0;
  static constexpr Mode kControl = ~Mode{0};  ///< FPCR has no flags; they are in FPSR.
  static Mode mode() noexcept {
    Mode mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(Mode mode) noexcept { asm volatile("msr fpcr, %0" : : "r"(mode) : "memory"); }
#else
#error "which register holds the rounding mode here?"
#endif

  const Mode before_;
};

}  // namespace lockstep::internal
