#include "tools/run/screen.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::run {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

Screen::Screen() : terminal_{isatty(STDOUT_FILENO) == 1, isatty(STDERR_FILENO) == 1} {}

void Screen::line(Stream stream, std::string_view text) {
  const bool over = is_terminal(stream) && std::exchange(drawn_, false);
  write(stream, std::string(over ? kClearLine : "") + std::string(text) + "\n");
}

void Screen::progress(Stream stream, std::string_view text) {
  if (!is_terminal(stream)) return;
  write(stream, std::string(kClearLine) + std::string(text));
  drawn_ = true;
}

void Screen::write(Stream stream, const std::string& text) {
  const int fd = stream == Stream::output ? STDOUT_FILENO : STDERR_FILENO;
  std::string_view left = text;
  while (!left.empty()) {
    const ssize_t count = ::write(fd, left.data(), left.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {  // Whoever shares the stream made it non-blocking.
      pollfd entry{fd, POLLOUT, 0};
      (void)poll(&entry, 1, -1);
      continue;
    }
    if (count < 0) return;  // Nobody reads any more; the ranks go on (see --help).
    left.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace lockstep::run
