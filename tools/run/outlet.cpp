#include "tools/run/outlet.hpp"

#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace lockstep::run {
namespace {

bool takes_more(int fd, int timeout) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, timeout) == 1;
}

/// 0, or what kept the rest from being written.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {  // Whoever shares the stream made it non-blocking.
      (void)takes_more(fd, -1);
      continue;
    }
    if (count < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

/// What goes into one write: of several lines those that fit, as a write of this size is never mixed with
/// those of other processes.
std::string_view next_piece(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  const std::size_t end = text.rfind('\n', PIPE_BUF - 1);
  return text.substr(0, end == std::string_view::npos ? PIPE_BUF : end + 1);
}

}  // namespace

Outlet::Outlet(int fd) : fd_(fd), kind_(kind_of(fd)) {}

Outlet::Kind Outlet::kind_of(int fd) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0) return Kind::other;
  return S_ISFIFO(facts.st_mode) ? Kind::pipe : S_ISSOCK(facts.st_mode) ? Kind::socket : Kind::other;
}

int Outlet::add(std::string_view text) {
  if (kind_ == Kind::other) return write_all(fd_, text);
  if (!is_waiting()) renew_patience();
  waiting_ += text;
  return 0;
}

void Outlet::flush() {
  std::string_view left = waiting_;
  while (!left.empty() && takes_more(fd_, 0)) {
    const ssize_t count = write_piece(next_piece(left));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;  // Another writer was faster.
    if (count < 0) left = {};  // Nobody reads any more; the ranks go on (see --help).
    if (count > 0) left.remove_prefix(static_cast<std::size_t>(count));
  }
  if (left.size() < waiting_.size()) renew_patience();
  if (!left.empty() && drop_at_ && drop_at_->passed()) {
    left = {};
    patience_.emplace(0);
  }
  waiting_.erase(0, waiting_.size() - left.size());
}

ssize_t Outlet::write_piece(std::string_view piece) const {
  if (kind_ == Kind::socket) return send(fd_, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return write(fd_, piece.data(), piece.size());
}

void Outlet::limit_patience(std::chrono::milliseconds patience) {
  patience_ = patience;
  renew_patience();
}

void Outlet::renew_patience() {
  if (patience_) drop_at_.emplace(internal::real_env(), *patience_);
}

}  // namespace lockstep::run
