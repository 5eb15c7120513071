// LineSplitter: cuts a stream of output into lines, and finds progress lines, which a program draws again and
// again by returning to the start of the line (\r).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::run {

class LineSplitter {
 public:
  struct Events {
    std::function<void(std::string_view text)> line;      ///< Ended by \n or \r\n; or by finish().
    std::function<void(std::string_view text)> progress;  ///< A state of a line that will be drawn over.
  };
  /// A line longer than this is cut: memory is bounded by it.
  static constexpr std::size_t kMaxLine = 64 << 10;

  explicit LineSplitter(Events events) : events_(std::move(events)) {}
  void take(std::string_view bytes);
  /// The stream ended: what is left is a line.
  void finish();

 private:
  void take(char c);
  void end_line();

  Events events_;
  std::string text_;
  std::string drawn_;      ///< The last progress of this line, kept in case nothing follows.
  bool returned_ = false;  ///< \r was read; the next character says what it meant.
};

}  // namespace lockstep::run
