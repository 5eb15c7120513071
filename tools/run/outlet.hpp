// Outlet: standard output or standard error of lockstep-run. What the reader of a pipe or a socket does not
// take at once waits here, so that lockstep-run never waits in a write: signals and deaths count meanwhile.
//
// The stream may be shared with other processes, so it is not made non-blocking: poll(2) says when a pipe has
// room for PIPE_BUF bytes. Regular files and terminals are written to at once.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "lib/bootstrap/deadline.hpp"

namespace lockstep::run {

inline constexpr int kNoTimeout = -1;  // Of poll(2).
/// The one of two timeouts that ends first.
inline int sooner(int a, int b) {
  return a == kNoTimeout || b == kNoTimeout ? std::max(a, b) : std::min(a, b);
}

class Outlet {
 public:
  explicit Outlet(int fd);
  /// Whole lines. 0, or why a file or a terminal has not taken all of them.
  int add(std::string_view text);
  /// Writes what the reader takes now. What it has not taken for longer than the patience is dropped, and
  /// from then on all that it does not take at once.
  void flush();
  /// From now on. Without one, text waits for ever.
  void limit_patience(std::chrono::milliseconds patience);

  bool is_waiting() const { return !waiting_.empty(); }
  /// Else whoever has more should keep it: memory is bounded by it.
  bool has_room() const { return waiting_.size() < kRoom; }
  /// For poll(2): when to flush.
  pollfd entry() const { return {is_waiting() ? fd_ : -1, POLLOUT, 0}; }
  int poll_timeout() const { return is_waiting() && drop_at_ ? drop_at_->poll_timeout() : kNoTimeout; }

 private:
  enum class Kind { pipe, socket, other };
  static constexpr std::size_t kRoom = 64 << 10;  // As a pipe's.

  static Kind kind_of(int fd);
  ssize_t write_piece(std::string_view piece) const;
  void renew_patience();

  const int fd_;
  const Kind kind_;
  std::string waiting_;
  std::optional<std::chrono::milliseconds> patience_;
  std::optional<internal::Deadline> drop_at_;  ///< Patience, since something was taken last.
};

}  // namespace lockstep::run
