// A system that gives a thread no more of something.
#pragma once

#include <cstddef>

namespace lockstep::testing {

/// While it lives, this thread gets no memory of lockstep::allocate, as where no descriptor is left; blocks
/// that were freed before may still serve.
class NoDescriptors {
 public:
  explicit NoDescriptors(bool here = true);
  ~NoDescriptors();
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
};

/// While it lives, this thread gets no ordinary memory of `bytes` or more at once.
class NoMemoryFrom {
 public:
  explicit NoMemoryFrom(std::size_t bytes, bool here = true);
  ~NoMemoryFrom();
  NoMemoryFrom(const NoMemoryFrom&) = delete;
  NoMemoryFrom& operator=(const NoMemoryFrom&) = delete;
};

}  // namespace lockstep::testing
