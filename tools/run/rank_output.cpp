#include "tools/run/rank_output.hpp"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::run {
namespace {

/// 0, or what kept the rest from being written.
int write_to_file(const internal::Fd& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

}  // namespace

RankOutput::RankOutput(int rank, Screen& screen, internal::Fd file, bool shown)
    : rank_(rank),
      prefix_("[" + std::to_string(rank) + "] "),
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
  if (file_) keep(bytes);
  (stream == Screen::Stream::output ? output_ : error_).take(bytes);
}

void RankOutput::keep(std::string_view bytes) {
  const int error = write_to_file(file_, bytes);
  if (error == 0 || std::exchange(told_of_loss_, true)) return;
  screen_.line(Screen::Stream::error, not_whole("the log of rank " + std::to_string(rank_), error));
}

void RankOutput::finish() {
  output_.finish();
  error_.finish();
}

}  // namespace lockstep::run
