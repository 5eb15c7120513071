#include "tools/run/line_splitter.hpp"

#include <utility>

namespace lockstep::run {

void LineSplitter::take(std::string_view bytes) {
  for (const char c : bytes) take(c);
  // A bar drawn after its \r has no end of its own: it is shown as it stands.
  if (!drawn_.empty() && !returned_ && !text_.empty()) events_.progress(text_);
}

void LineSplitter::take(char c) {
  if (c == '\n') return end_line();
  if (std::exchange(returned_, c == '\r') && !text_.empty()) {
    events_.progress(text_);
    drawn_ = std::exchange(text_, "");
  }
  if (c == '\r') return;
  if (text_.size() == kMaxLine) end_line();  // Only now: its \n may have followed.
  text_ += c;
}

void LineSplitter::end_line() {
  events_.line(text_.empty() ? drawn_ : text_);
  text_.clear();
  drawn_.clear();
  returned_ = false;
}

void LineSplitter::finish() {
  if (!text_.empty() || !drawn_.empty()) end_line();
}

}  // namespace lockstep::run
