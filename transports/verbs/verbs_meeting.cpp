#include "transports/verbs/verbs_meeting.hpp"

#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "lib/base/hash.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {
namespace {

// Apart from the channels of TCP links of the same group.
constexpr std::uint64_t kPurpose = 0x7665726273;  // "verbs"

}  // namespace

Result<std::unique_ptr<VerbsMeeting>> VerbsMeeting::make(std::uint64_t group, int rank,
                                                         std::span<const int> world_ranks,
                                                         Switchboard& switchboard) {
  const std::uint64_t channel = hash_combine(hash_combine(kFnvOffset, group), kPurpose);
  std::unique_ptr<VerbsMeeting> made(new VerbsMeeting(channel, rank, world_ranks, switchboard));
  LOCKSTEP_RETURN_IF_ERROR(made->open());
  return made;
}

Status VerbsMeeting::open() {
  auto bell = SwitchboardBell::hang(switchboard_);
  if (!bell.ok()) return bell.status();
  bell_ = std::move(*bell);
  events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!events_) return system_error("epoll", errno);
  watch(bell_->descriptor());
  Reactor& reactor = Reactor::instance();
  // Told of each event once: the engine that is stepped then takes all of them.
  watch_ = reactor.watch(events_.get(), EPOLLIN | EPOLLET, [&reactor](std::uint32_t) { reactor.notify(); });
  return watch_ != 0 ? Status() : system_error("watching for peers", errno);
}

void VerbsMeeting::close() {
  if (std::exchange(closed_, true)) return;
  Reactor::instance().remove(watch_);
  bell_.reset();
  switchboard_.forget(channel_);
}

void VerbsMeeting::want(int peer) {
  if (!closed_) switchboard_.want(world_ranks_[static_cast<std::size_t>(peer)], channel_);
}

void VerbsMeeting::watch(int socket) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = socket}};
  // Refused only without memory; then the sleeper's own looks find what came.
  static_cast<void>(epoll_ctl(events_.get(), EPOLL_CTL_ADD, socket, &event));
}

std::vector<VerbsMeeting::Met> VerbsMeeting::met() {
  std::vector<Met> all;
  if (closed_ || !bell_->changed()) return all;
  for (std::size_t place = 0; place < met_.size(); ++place) {
    const int peer = static_cast<int>(place);
    if (met_[place] || peer == rank_) continue;
    auto socket = switchboard_.take(world_ranks_[place], channel_, peer);
    if (socket.ok() && !*socket) continue;
    met_[place] = true;
    if (socket.ok()) {
      all.push_back({peer, std::move(**socket)});
    } else {
      all.push_back({peer, socket.status()});
    }
  }
  return all;
}

}  // namespace lockstep::internal
