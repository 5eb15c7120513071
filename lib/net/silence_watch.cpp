#include "lib/net/silence_watch.hpp"

#include <sys/socket.h>

#include "lib/net/stream_io.hpp"

namespace lockstep::internal {
namespace {

constexpr Nanos kLookEvery = 1'000'000'000;

}  // namespace

SilenceWatch::~SilenceWatch() {
  if (in_forked_child()) return;  // The lock may be held by a thread that is not here.
  Reactor::Handle timer = 0;
  {
    std::lock_guard lock(mutex_);
    silent_.clear();
    timer = timer_;
  }
  reactor_.remove(timer);
}

void SilenceWatch::add(int fd) {
  std::lock_guard lock(mutex_);
  silent_[fd] = false;
  if (timer_ == 0) look_later();
}

void SilenceWatch::remove(int fd) {
  if (in_forked_child()) return;
  std::lock_guard lock(mutex_);
  silent_.erase(fd);
}

bool SilenceWatch::fell_silent(int fd) {
  std::lock_guard lock(mutex_);
  const auto found = silent_.find(fd);
  return found != silent_.end() && found->second;
}

void SilenceWatch::look_later() {
  timer_ = reactor_.at(env_.now() + kLookEvery, [this] { look(); });
}

void SilenceWatch::look() {
  std::lock_guard lock(mutex_);
  timer_ = 0;
  for (auto& [fd, silent] : silent_) {
    if (silent || !is_silent(fd)) continue;
    silent = true;
    ::shutdown(fd, SHUT_RDWR);
  }
  if (!silent_.empty()) look_later();
}

}  // namespace lockstep::internal
