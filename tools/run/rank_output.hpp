// RankOutput: where one rank's output goes: to the screen with its number in front, to its file as it is, and
// its last lines of standard error into memory, for the report of a failure.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "lib/net/fd.hpp"
#include "tools/run/line_splitter.hpp"
#include "tools/run/screen.hpp"

namespace lockstep::run {

class RankOutput {
 public:
  static constexpr std::size_t kTailLines = 20;

  /// `file` may be empty; `shown`: on the screen. `screen` outlives this.
  RankOutput(int rank, Screen& screen, internal::Fd file, bool shown);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  /// Else more can wait where it is.
  bool has_room(Screen::Stream stream) const { return !shown_ || screen_.has_room(stream); }
  void take(Screen::Stream stream, std::string_view bytes);
  /// Both streams ended.
  void finish();
  /// The last lines of standard error, prefixed.
  const std::deque<std::string>& tail() const { return tail_; }

 private:
  LineSplitter::Events events(Screen::Stream stream);

  void keep(std::string_view bytes);

  const int rank_;
  const std::string prefix_;
  Screen& screen_;
  internal::Fd file_;
  bool told_of_loss_ = false;
  const bool shown_;
  LineSplitter output_, error_;
  std::deque<std::string> tail_;
};

}  // namespace lockstep::run
