#include "collectives/engine/sleeper.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "lib/base/log.hpp"

namespace lockstep::internal {
namespace {

/// Descriptors up to which all are watched only during a sleep, which costs each two system calls: a packet
/// that meets a watched socket otherwise pays for it, in its sender's call, though nobody sleeps.
constexpr std::size_t kWatchedForASleep = 8;

/// Once for a process: a communicator works without them, but wakes often for nothing.
void tell_of_no_descriptor(int error_number) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  warn(std::string("a communicator has no file descriptor to sleep on (") + std::strerror(error_number) +
       "): it works, but looks for what is new every millisecond; raise `ulimit -n`");
}

void drain_bell(int fd) {
  std::uint64_t count = 0;
  while (::read(fd, &count, sizeof count) > 0) {
  }
}

}  // namespace

Sleeper::Sleeper(Transport* transport, int size, int self)
    : transport_(transport),
      domain_(transport ? transport->doorbell_domain() : nullptr),
      size_(size),
      self_(self) {
  if (domain_ == nullptr) bell_fd_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (bell_fd() < 0 || !epoll_) tell_of_no_descriptor(errno);
  epoll_event event{.events = EPOLLIN, .data = {.fd = bell_fd()}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell_fd(), &event);
}

Doorbell& Sleeper::bell() { return domain_ ? domain_->control(domain_->rank()).doorbell : own_bell_; }
int Sleeper::bell_fd() const { return domain_ ? domain_->bell_fd() : bell_fd_.get(); }

void Sleeper::want(const pollfd& entry, std::uint32_t mode) {
  if (entry.fd >= 0) wanted_.push_back({entry.fd, static_cast<std::uint32_t>(entry.events) | mode});
}

/// What there is to be woken by but the bell.
void Sleeper::list_wanted(bool others_held) {
  wanted_.clear();
  if (transport_ == nullptr) return;
  for (int peer = 0; peer < size_; ++peer) {
    for (const Channel channel : kEachChannel) {
      if (others_held && channel == Channel::collective) continue;
      Link* link = peer == self_ ? nullptr : transport_->existing_link(peer, channel);
      if (link != nullptr) want(link->poll_entry(), EPOLLET);
    }
  }
  beyond_links_.clear();
  transport_->append_poll_entries(beyond_links_);
  for (const pollfd& entry : beyond_links_) want(entry, 0);
}

void Sleeper::watch_wanted() {
  watched_.reserve(watched_.size() + wanted_.size());  // What epoll watches is to be known here.
  for (const Watched& entry : wanted_) {
    epoll_event event{.events = entry.events, .data = {.fd = entry.fd}};
    const auto known = std::find_if(watched_.begin(), watched_.end(),
                                    [&](const Watched& watched) { return watched.fd == entry.fd; });
    if (known == watched_.end()) {
      if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, entry.fd, &event) == 0) watched_.push_back(entry);
    } else if (known->events != entry.events) {
      epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, entry.fd, &event);
      known->events = entry.events;
    }
  }
}

template <class Which>
void Sleeper::unwatch(Which which) {
  std::erase_if(watched_, [&](const Watched& watched) {
    if (!which(watched)) return false;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watched.fd, nullptr);
    return true;
  });
}

/// Makes the epoll set equal to what the links want to be watched for. Whether that is anything.
bool Sleeper::refresh(bool others_held) {
  // What is not a link's may be closed by now, and its number be another's.
  unwatch([](const Watched& watched) { return (watched.events & EPOLLET) == 0; });
  list_wanted(others_held);
  watch_wanted();
  unwatch([&](const Watched& watched) {
    return std::none_of(wanted_.begin(), wanted_.end(),
                        [&](const Watched& entry) { return entry.fd == watched.fd; });
  });
  return !wanted_.empty();
}

/// Of the links: they are watched for edges, which a look takes away.
void Sleeper::forget_past_events() {
  std::array<epoll_event, 64> events;
  for (std::size_t looks = 0; looks <= watched_.size() / events.size(); ++looks)
    epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
}

bool Sleeper::declare(bool for_poll, bool others_held) {
  const bool in_poll = refresh(others_held) || for_poll;
  declare_asleep(bell(), in_poll);
  if (in_poll) forget_past_events();  // Before the caller's last look, which sees what they told of.
  return in_poll;
}

void Sleeper::sleep(bool in_poll, Nanos timeout) {
  if (!in_poll) return sleep_on(bell(), timeout);
  epoll_event event;
  const Nanos milliseconds = (timeout + 999'999) / 1'000'000;
  epoll_wait(epoll_.get(), &event, 1, static_cast<int>(std::clamp<Nanos>(milliseconds, 0, 1 << 30)));
}

void Sleeper::undeclare() {
  declare_awake(bell());
  drain_bell(bell_fd());
  if (watched_.size() <= kWatchedForASleep) unwatch([](const Watched&) { return true; });
}

void Sleeper::wake() { internal::wake(bell(), bell_fd()); }

}  // namespace lockstep::internal
