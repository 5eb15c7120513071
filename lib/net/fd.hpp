// Fd: an owned file descriptor that a forked child does not keep. Every descriptor of the library lives in
// one of these, so that children forked by the application (data loaders) hold no connection open and a
// killed rank is noticed at once.
#pragma once

#include <utility>

#include "lib/base/status.hpp"

namespace lockstep::internal {

class Fd {
 public:
  Fd() noexcept = default;
  /// Takes ownership; -1 = none. Moves it where `fd` is a standard stream's number; where no other is left it
  /// is closed, and there is none (errno: EMFILE).
  explicit Fd(int fd);
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

/// True in a child forked while an Fd was open: the library was in use, and cannot be used in the child.
bool in_forked_child() noexcept;
/// What is said to a caller there.
Status forked_child_error();

}  // namespace lockstep::internal
