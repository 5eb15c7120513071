// Screen: lockstep-run's own standard output and error, on which whole lines of many ranks appear.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "tools/run/outlet.hpp"

namespace lockstep::run {

/// A full disk must not stop the job: what does not fit is lost, and that is said once, in these words.
std::string not_whole(const std::string& name, int error);

class Screen {
 public:
  enum class Stream { output, error };

  Screen();
  /// Whether ranks should believe that they write to a terminal.
  bool is_terminal(Stream stream) const { return terminal_[index(stream)]; }
  /// One whole line; `text` has no newline.
  void line(Stream stream, std::string_view text);
  /// A state of a progress line: drawn in place on a terminal, left out elsewhere.
  void progress(Stream stream, std::string_view text);

  // As of both outlets.
  bool has_room(Stream stream) const { return outlets_[outlet(stream)].has_room(); }
  bool is_waiting() const;
  void flush();
  void limit_patience(std::chrono::milliseconds patience);
  void add_entries(std::vector<pollfd>& entries) const;
  int poll_timeout() const;

 private:
  static std::size_t index(Stream stream) { return stream == Stream::output ? 0 : 1; }
  std::size_t outlet(Stream stream) const { return one_outlet_ ? 0 : index(stream); }

  const std::array<bool, 2> terminal_;
  const bool one_outlet_;  ///< Both streams are one (2>&1): their lines stay in order, and whole.
  std::array<Outlet, 2> outlets_;
  bool drawn_ = false;         ///< A progress line stands where the next line goes.
  bool told_of_loss_ = false;  ///< Of standard output.
};

}  // namespace lockstep::run
