#include "transports/tcp/tcp_transport.hpp"

#include <new>
#include <utility>

#include "lib/base/hash.hpp"
#include "transports/tcp/lingering_close.hpp"
#include "transports/tcp/striped_link.hpp"
#include "transports/tcp/switchboard_bell.hpp"
#include "transports/tcp/tcp_link.hpp"

namespace lockstep::internal {
namespace {

std::uint64_t wire_channel(std::uint64_t group, Channel channel, int socket) {
  return hash_combine(hash_combine(hash_combine(kFnvOffset, group), static_cast<std::uint64_t>(channel)),
                      static_cast<std::uint64_t>(socket));
}

/// Peers that ask for this rank's links see them end.
void forget_links(Switchboard& switchboard, std::uint64_t group) {
  for (const Channel channel : kEachChannel) {
    for (int i = 0; i < switchboard.sockets_per_link(); ++i)
      switchboard.forget(wire_channel(group, channel, i));
  }
}

class TcpTransport final : public Transport {
 public:
  TcpTransport(std::uint64_t group, int rank, std::span<const int> world_ranks, Switchboard& switchboard,
               std::unique_ptr<SwitchboardBell> bell)
      : group_(group),
        rank_(rank),
        world_ranks_(world_ranks.begin(), world_ranks.end()),
        switchboard_(switchboard),
        bell_(std::move(bell)),
        slots_(world_ranks.size() * kChannels) {}
  ~TcpTransport() override { close(); }

  std::string_view name() const override { return "tcp"; }
  Result<Link*> link(int peer, Channel channel) override;
  Status service() override;
  Link* existing_link(int peer, Channel channel) override { return slot(peer, channel).link.get(); }
  bool link_is_under_way(int peer, Channel channel) override;
  void append_poll_entries(std::vector<pollfd>& entries) override {
    entries.push_back({bell_->descriptor(), POLLIN, 0});
  }
  Domain* domain() override { return nullptr; }
  void close() override;

 private:
  struct Slot {
    bool wanted = false;
    std::vector<Fd> sockets;  // Those that came so far, in order; gone once the link exists.
    std::vector<TcpLink*> streams;
    std::unique_ptr<Link> link;
    Status failure;
  };

  Slot& slot(int peer, Channel channel) {
    return slots_[static_cast<std::size_t>(peer) * kChannels + static_cast<std::size_t>(channel)];
  }
  int world_rank(int peer) const { return world_ranks_[static_cast<std::size_t>(peer)]; }
  Status collect(int peer, Channel channel);
  Status build(int peer, Slot& slot);
  void drop_links();

  const std::uint64_t group_;
  const int rank_;
  const std::vector<int> world_ranks_;
  Switchboard& switchboard_;
  const std::unique_ptr<SwitchboardBell> bell_;
  const std::shared_ptr<Bounce> bounce_ = std::make_shared<Bounce>();
  std::vector<Slot> slots_;
  bool closed_ = false;  // The switchboard may be gone.
};

Result<Link*> TcpTransport::link(int peer, Channel channel) {
  if (closed_) return Status(ErrorCode::aborted, "the links of this rank were closed");
  Slot& slot = this->slot(peer, channel);
  if (slot.link) return slot.link.get();
  if (!slot.wanted) {
    slot.wanted = true;
    for (int i = 0; i < switchboard_.sockets_per_link(); ++i) {
      switchboard_.want(world_rank(peer), wire_channel(group_, channel, i), i);
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(collect(peer, channel));
  return slot.link.get();
}

bool TcpTransport::link_is_under_way(int peer, Channel channel) {
  const Slot& slot = this->slot(peer, channel);
  if (closed_ || slot.link || !slot.failure.ok()) return false;
  if (!slot.sockets.empty()) return true;
  for (int i = 0; i < switchboard_.sockets_per_link(); ++i) {
    if (switchboard_.is_under_way(world_rank(peer), wire_channel(group_, channel, i))) return true;
  }
  return false;
}

// Takes what the switchboard has for one link, and builds the link when that is all.
Status TcpTransport::collect(int peer, Channel channel) try {
  Slot& slot = this->slot(peer, channel);
  if (slot.link) return {};
  if (!slot.failure.ok()) return slot.failure;
  while (static_cast<int>(slot.sockets.size()) < switchboard_.sockets_per_link()) {
    const int next = static_cast<int>(slot.sockets.size());
    auto socket = switchboard_.take(world_rank(peer), wire_channel(group_, channel, next), peer);
    if (!socket.ok()) {
      slot.failure = socket.status();
      return slot.failure;
    }
    if (!*socket) return {};
    slot.sockets.push_back(std::move(**socket));
  }
  slot.failure = build(peer, slot);
  return slot.failure;
} catch (const std::bad_alloc&) {  // A socket that was taken went with it; no bell rings for it again.
  Slot& slot = this->slot(peer, channel);
  slot.failure =
      Status(ErrorCode::out_of_memory,
             words_of([&] { return "memory ran out for a link to rank " + std::to_string(peer); }));
  return slot.failure;
}

// The sockets go with a link that cannot be built: the slot must name none of them then.
Status TcpTransport::build(int peer, Slot& slot) {
  std::vector<Fd> sockets = std::exchange(slot.sockets, {});
  std::vector<std::unique_ptr<TcpLink>> links;
  std::vector<TcpLink*> streams;
  for (Fd& socket : sockets) {
    links.push_back(std::make_unique<TcpLink>(std::move(socket), peer, bounce_,
                                              switchboard_.silence_watch(world_rank(peer))));
    streams.push_back(links.back().get());
  }
  if (links.size() == 1) {
    slot.link = std::move(links.front());
  } else {
    auto striped = StripedLink::make(std::move(links), peer);
    if (!striped.ok()) return striped.status();
    slot.link = std::move(*striped);
  }
  slot.streams = std::move(streams);
  return {};
}

Status TcpTransport::service() {
  if (!bell_->changed()) return {};
  Status first;
  for (int peer = 0; peer < static_cast<int>(world_ranks_.size()); ++peer) {
    if (peer == rank_) continue;
    for (const Channel channel : kEachChannel) {
      Status one = collect(peer, channel);
      if (first.ok()) first = std::move(one);
    }
  }
  return first;
}

void TcpTransport::close() {
  if (std::exchange(closed_, true)) return;
  drop_links();
  bell_->silence();
  forget_links(switchboard_, group_);
}

void TcpTransport::drop_links() {
  for (Slot& slot : slots_) {
    for (TcpLink* stream : slot.streams) close_lingering(Reactor::instance(), stream->take_socket());
    slot = {};
  }
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(std::uint64_t group, int rank,
                                                      std::span<const int> world_ranks,
                                                      Switchboard& switchboard) {
  auto bell = SwitchboardBell::hang(switchboard);
  if (!bell.ok()) {
    forget_links(switchboard, group);  // The others may have theirs, and wait for nobody to get it.
    return bell.status();
  }
  return std::unique_ptr<Transport>(
      std::make_unique<TcpTransport>(group, rank, world_ranks, switchboard, std::move(*bell)));
}

}  // namespace lockstep::internal
