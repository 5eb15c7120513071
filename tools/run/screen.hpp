// Screen: lockstep-run's own standard output and error, on which whole lines of many ranks appear.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::run {

class Screen {
 public:
  enum class Stream { output, error };

  Screen();
  /// Whether ranks should believe that they write to a terminal.
  bool is_terminal(Stream stream) const { return terminal_[index(stream)]; }
  /// One whole line, in one write; `text` has no newline.
  void line(Stream stream, std::string_view text);
  /// A state of a progress line: drawn in place on a terminal, left out elsewhere.
  void progress(Stream stream, std::string_view text);

 private:
  static std::size_t index(Stream stream) { return stream == Stream::output ? 0 : 1; }
  void write(Stream stream, const std::string& text);

  bool terminal_[2];
  bool drawn_ = false;  ///< A progress line stands where the next line goes.
};

}  // namespace lockstep::run
