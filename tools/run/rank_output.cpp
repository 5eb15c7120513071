#include "tools/run/rank_output.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::run {
namespace {

// A full disk must not stop the job: what does not fit is lost.
void write_to_file(const internal::Fd& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

RankOutput::RankOutput(int rank, Screen& screen, internal::Fd file, bool shown)
    : prefix_("[" + std::to_string(rank) + "] "),
      screen_(screen),
      file_(std::move(file)),
      shown_(shown),
      output_(events(Screen::Stream::output)),
      error_(events(Screen::Stream::error)) {}

LineSplitter::Events RankOutput::events(Screen::Stream stream) {
  LineSplitter::Events events;
  events.line = [this, stream](std::string_view text) {
    std::string line = prefix_ + std::string(text);
    if (shown_) screen_.line(stream, line);
    if (stream == Screen::Stream::output) return;
    tail_.push_back(std::move(line));
    if (tail_.size() > kTailLines) tail_.pop_front();
  };
  events.progress = [this, stream](std::string_view text) {
    if (shown_) screen_.progress(stream, prefix_ + std::string(text));
  };
  return events;
}

void RankOutput::take(Screen::Stream stream, std::string_view bytes) {
  if (file_) write_to_file(file_, bytes);
  (stream == Screen::Stream::output ? output_ : error_).take(bytes);
}

void RankOutput::finish() {
  output_.finish();
  error_.finish();
}

}  // namespace lockstep::run
