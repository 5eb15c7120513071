#include "tools/run/screen.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::run {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";

bool is_one_stream(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  if (fstat(a, &of_a) != 0 || fstat(b, &of_b) != 0) return false;
  return !S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

std::string not_whole(const std::string& name, int error) {
  return "lockstep-run: " + name + " is not whole: " + std::strerror(error) + "; the job goes on";
}

Screen::Screen()
    : terminal_{isatty(STDOUT_FILENO) == 1, isatty(STDERR_FILENO) == 1},
      one_outlet_(is_one_stream(STDOUT_FILENO, STDERR_FILENO)),
      outlets_{Outlet(STDOUT_FILENO), Outlet(STDERR_FILENO)} {}

void Screen::line(Stream stream, std::string_view text) {
  const bool over = is_terminal(stream) && std::exchange(drawn_, false);
  const int error =
      outlets_[outlet(stream)].add(std::string(over ? kClearLine : "") + std::string(text) + "\n");
  if (error != 0 && stream == Stream::output && !std::exchange(told_of_loss_, true))
    line(Stream::error, not_whole("standard output", error));
}

void Screen::progress(Stream stream, std::string_view text) {
  if (!is_terminal(stream)) return;
  static_cast<void>(outlets_[outlet(stream)].add(std::string(kClearLine) + std::string(text)));
  drawn_ = true;
}

bool Screen::is_waiting() const {
  return std::any_of(outlets_.begin(), outlets_.end(), [](const Outlet& one) { return one.is_waiting(); });
}

void Screen::flush() {
  for (Outlet& one : outlets_) one.flush();
}

void Screen::limit_patience(std::chrono::milliseconds patience) {
  for (Outlet& one : outlets_) one.limit_patience(patience);
}

void Screen::add_entries(std::vector<pollfd>& entries) const {
  for (const Outlet& one : outlets_) entries.push_back(one.entry());
}

int Screen::poll_timeout() const { return sooner(outlets_[0].poll_timeout(), outlets_[1].poll_timeout()); }

}  // namespace lockstep::run
