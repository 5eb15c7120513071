// An operator new that finds no memory when a test wants it so: every one of the program, the library's
// included, and of either form, looks here.
#pragma once

#include <cstddef>

namespace lockstep::testing {

/// While it lives, this thread finds no memory for pieces of `least` bytes or more, `times` times, once it
/// has had `allowed` of them.
class ScarceMemory {
 public:
  explicit ScarceMemory(std::size_t least, int times = kForGood, int allowed = 0);
  static constexpr int kForGood = 1 << 30;
  ~ScarceMemory();
  ScarceMemory(const ScarceMemory&) = delete;
  ScarceMemory& operator=(const ScarceMemory&) = delete;
  /// How often memory was refused.
  int refused() const;
};

}  // namespace lockstep::testing
