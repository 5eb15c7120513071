#include "transports/tcp/switchboard.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <utility>

#include "lib/base/config.hpp"
#include "lib/bootstrap/exchange.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/net/interfaces.hpp"
#include "lib/net/stream_io.hpp"
#include "lib/net/tcp_socket.hpp"
#include "transports/tcp/host_probe.hpp"
#include "transports/tcp/limits.hpp"
#include "transports/tcp/published_address.hpp"

namespace lockstep::internal {
namespace {

Result<int> sockets_of_link(int usual) {
  const bool set = config_is_set("LOCKSTEP_TCP_SOCKETS");
  const std::int64_t sockets = set ? config_integer("LOCKSTEP_TCP_SOCKETS") : usual;
  if (sockets >= 1 && sockets <= kMaxSockets) return static_cast<int>(sockets);
  return Status(ErrorCode::configuration,
                std::string(set ? "LOCKSTEP_TCP_SOCKETS" : "tcp_sockets of the tuning file") + " is " +
                    std::to_string(sockets) + ", but a link has 1 to " + std::to_string(kMaxSockets) +
                    " sockets");
}

/// What no link could have is an error of the start, not of the first link.
Status check_congestion(const std::string& name) {
  if (name.empty()) return {};
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) return system_error("cannot create a socket", errno);
  return set_stream_options(socket, {name, true, false});
}

std::vector<int> all_ranks(const Session& session) {
  std::vector<int> ranks(static_cast<std::size_t>(session.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

// ---- making and ending ----

Switchboard::Switchboard(Session& session, Env& env, int sockets)
    : session_(session),
      env_(env),
      reactor_(Reactor::instance()),
      rank_(session.rank()),
      sockets_(sockets),
      key_(make_handshake_key(session.job_id(), session.secret())),
      congestion_(config_text("LOCKSTEP_TCP_CONGESTION")),
      loss_callback_(env.random()),
      silence_watch_(reactor_, env) {}

Result<std::unique_ptr<Switchboard>> Switchboard::make(Session& session, Env& env, int sockets_per_link) {
  auto sockets = sockets_of_link(sockets_per_link);
  if (!sockets.ok()) return sockets.status();
  LOCKSTEP_RETURN_IF_ERROR(check_congestion(config_text("LOCKSTEP_TCP_CONGESTION")));
  auto listeners = listen_for_peers(session);
  if (!listeners.ok()) return listeners.status();
  std::unique_ptr<Switchboard> board(new Switchboard(session, env, *sockets));
  board->open(std::move(*listeners));
  LOCKSTEP_RETURN_IF_ERROR(board->meet(start_timeout({})));
  return board;
}

void Switchboard::open(Listeners listeners) {
  own_rails_ = listeners.rails;
  rails_.assign(static_cast<std::size_t>(session_.size()), 1);
  addresses_.resize(static_cast<std::size_t>(session_.size()));
  for (const Fd& listener : listeners.sockets) {
    addresses_[static_cast<std::size_t>(rank_)].push_back(local_address(listener));
  }
  session_.on_loss(loss_callback_, [this](const Loss& loss) { on_loss(loss); });
  const Acceptor::Events events{
      .admit = [this](const HandshakeHello& hello) { return admit(hello); },
      .accepted = [this](Fd socket, const HandshakeHello& hello) { accepted(std::move(socket), hello); },
      .refused = {}};
  reactor_.run_there([&] {
    for (Fd& listener : listeners.sockets) {
      acceptors_.push_back(
          std::make_unique<Acceptor>(reactor_, std::move(listener), key_, rank_, session_.size(), events));
    }
  });
}

Status Switchboard::meet(std::chrono::milliseconds timeout) {
  const PublishedAddress mine{addresses(), sockets_, own_rails_};
  auto published = exchange(session_, env_, kPublishedName, mine.text(), all_ranks(session_),
                            "the TCP addresses", timeout);
  if (!published.ok()) return published.status();
  LOCKSTEP_RETURN_IF_ERROR(learn(*published));
  return probe_hosts(timeout);
}

// Hosts that cannot reach each other are an error at once, and on all ranks, not in the first collective that
// needs the way.
Status Switchboard::probe_hosts(std::chrono::milliseconds timeout) {
  const JobHosts hosts(session_.members());
  if (hosts.size() == 1) return {};
  const bool speaks = hosts.speaker(hosts.of_rank(rank_)) == rank_;
  auto published = exchange(session_, env_, "tcp-reach", speaks ? probe_from(hosts, timeout) : std::string(),
                            hosts.speakers(), "the ways between hosts", timeout);
  if (!published.ok()) return published.status();
  std::vector<ReachRow> rows;
  for (const std::string& text : *published) {
    auto row = decode_reach_row(text);
    if (!row.ok()) return row.status();
    rows.push_back(std::move(*row));
  }
  if (Status closed = judge_reachability(hosts, rows); !closed.ok()) {
    // A rank that ended now would take the store with it, or be what the others are told of, before all have
    // read of the closed ways.
    static_cast<void>(exchange(session_, env_, "tcp-reach-read", {}, all_ranks(session_),
                               "the ranks to read of closed ways", std::min(timeout, kReadDeadline)));
    return closed;
  }
  prefer_reached(hosts, rows[static_cast<std::size_t>(hosts.of_rank(rank_))]);
  return {};
}

std::string Switchboard::probe_from(const JobHosts& hosts, std::chrono::milliseconds timeout) {
  const int own = hosts.of_rank(rank_);
  std::vector<ProbeTarget> targets;
  for (int step = 1; step < std::min(hosts.size(), kProbedHosts + 1); ++step) {
    const int host = (own + step) % hosts.size(), peer = hosts.speaker(host);
    targets.push_back({host, peer, name_of(peer), addresses_[static_cast<std::size_t>(peer)]});
  }
  HandshakeHello hello;
  hello.service = HandshakeService::probe;
  hello.rank = rank_;
  hello.world = session_.size();
  // The others wait for what is found, so half of the time must be left.
  const auto most = std::min<std::chrono::milliseconds>(kProbeDeadline, timeout / 2);
  return encode(HostProbe(reactor_, key_, hello, sockets_ > 1).run(targets, most));
}

// The ranks of a host share its networks: what answered its speaker is tried first for all of them. Rails
// are those of the peer's that answered.
void Switchboard::prefer_reached(const JobHosts& hosts, const ReachRow& reached) {
  for (const HostReach& reach : reached) {
    for (int rank = 0; rank < session_.size(); ++rank) {
      if (hosts.of_rank(rank) != reach.host) continue;
      auto& addresses = addresses_[static_cast<std::size_t>(rank)];
      const auto answered = [&](const HostPort& address) {
        return address.host == reach.address ||
               std::find(reach.rails.begin(), reach.rails.end(), address.host) != reach.rails.end();
      };
      int& rails = rails_[static_cast<std::size_t>(rank)];
      rails = static_cast<int>(std::count_if(addresses.begin(), addresses.begin() + rails, answered));
      std::stable_partition(addresses.begin(), addresses.end(), answered);
    }
  }
}

Status Switchboard::learn(const std::vector<std::string>& published) {
  for (int rank = 0; rank < session_.size(); ++rank) {
    auto theirs = PublishedAddress::parse(published[static_cast<std::size_t>(rank)]);
    if (!theirs.ok()) return theirs.status().with_context("address of " + name_of(rank));
    if (theirs->sockets != sockets_) {
      return Status(ErrorCode::configuration,
                    "LOCKSTEP_TCP_SOCKETS is " + std::to_string(sockets_) + " on rank " +
                        std::to_string(rank_) + " and " + std::to_string(theirs->sockets) + " on rank " +
                        std::to_string(rank) + ": set it equally on all ranks",
                    rank);
    }
    addresses_[static_cast<std::size_t>(rank)] = std::move(theirs->where);
    rails_[static_cast<std::size_t>(rank)] = theirs->rails;
  }
  return {};
}

Switchboard::~Switchboard() {
  session_.remove_loss_callback(loss_callback_);
  reactor_.run_there([this] {
    for (auto& [key, effort] : efforts_) reactor_.remove(effort.timer);
    efforts_.clear();
    acceptors_.clear();
    alive_.reset();
  });
}

// ---- the callers' side ----

void Switchboard::want(int peer, std::uint64_t channel, int rail) {
  const Key key{peer, channel};
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[key];
  if (slot.wanted || slot.socket) return;
  slot.wanted = true;
  if (const auto lost = lost_.find(peer); lost != lost_.end()) {
    slot.failure = lost->second;
    return announce_change();
  }
  post([this, key, rail] { begin(key, rail); });
}

void Switchboard::post(std::function<void()> task) {
  reactor_.post([task = std::move(task), alive = std::weak_ptr<const bool>(alive_)] {
    if (!alive.expired()) task();
  });
}

Result<std::optional<Fd>> Switchboard::take(int peer, std::uint64_t channel) {
  std::lock_guard lock(mutex_);
  const auto found = slots_.find({peer, channel});
  if (found == slots_.end()) return std::optional<Fd>();
  Slot& slot = found->second;
  if (slot.socket) {
    slot.taken = true;
    return std::exchange(slot.socket, std::nullopt);
  }
  if (!slot.failure.ok()) return slot.failure;
  return std::optional<Fd>();
}

void Switchboard::forget(int peer, std::uint64_t channel) {
  const Key key{peer, channel};
  std::lock_guard lock(mutex_);
  const auto found = slots_.find(key);
  if (found == slots_.end()) return;
  const bool under_way = found->second.wanted && !found->second.taken && !found->second.socket;
  slots_.erase(found);
  if (under_way) post([this, key] { give_up_effort(key); });
}

void Switchboard::attach(int eventfd) {
  std::lock_guard lock(mutex_);
  attached_.insert(eventfd);
}

void Switchboard::detach(int eventfd) {
  std::lock_guard lock(mutex_);
  attached_.erase(eventfd);
}

void Switchboard::announce_change() {
  changes_.fetch_add(1, std::memory_order_release);
  const std::uint64_t one = 1;
  for (const int eventfd : attached_) {
    // A full counter is as readable as any.
    [[maybe_unused]] const ssize_t written = ::write(eventfd, &one, sizeof one);
  }
}

// ---- the reactor's side ----

void Switchboard::begin(Key key, int rail) {
  Effort& effort = efforts_[key];
  effort.rail = rail;
  if (rank_ < key.first) return call(key);
  effort.timer = reactor_.at(env_.now() + to_nanos(kKnockDelay), [this, key] { call(key); });
}

// All addresses of the peer, first that of the rail.
std::vector<HostPort> Switchboard::ways_to(int peer, int rail) const {
  std::vector<HostPort> ways = addresses_[static_cast<std::size_t>(peer)];
  const int rails = std::min(own_rails_, rails_[static_cast<std::size_t>(peer)]);
  if (rails > 1) std::rotate(ways.begin(), ways.begin() + rail % rails, ways.begin() + rails);
  return ways;
}

void Switchboard::call(Key key) {
  const auto [peer, channel] = key;
  HandshakeHello hello;
  hello.service = rank_ < peer ? HandshakeService::link : HandshakeService::knock;
  hello.rank = rank_;
  hello.world = session_.size();
  hello.peer = peer;
  hello.channel = channel;
  Effort& effort = efforts_[key];
  effort.called = env_.now();
  if (effort.attempts == 0) effort.began = effort.called;
  effort.call = std::make_unique<AddressRace>(
      reactor_, key_, hello, ways_to(peer, effort.rail), name_of(peer),
      [this, key](AddressRace::Outcome outcome, Status why) { called(key, outcome, std::move(why)); });
  effort.call->start();
}

void Switchboard::called(Key key, AddressRace::Outcome outcome, Status why) {
  Effort& effort = efforts_[key];
  const std::unique_ptr<AddressRace> ended = std::move(effort.call);
  const bool knocked = rank_ > key.first;
  if (outcome == AddressRace::Outcome::connected) {
    if (!knocked) connected(key, ended->take_socket());
    return;
  }
  ++effort.attempts;
  if (outcome == AddressRace::Outcome::broken && tries_again(effort)) return call(key);
  fail(key, std::move(why));
}

/// After an attempt that broke.
bool Switchboard::tries_again(const Effort& effort) const {
  const Nanos now = env_.now();
  const bool late = now - effort.called >= to_nanos(kHandshakeDeadline);
  return effort.attempts < kConnectAttempts || (late && now - effort.began < to_nanos(kLateHelloPatience));
}

HandshakeStatus Switchboard::admit(const HandshakeHello& hello) const {
  if (hello.rank == rank_) return HandshakeStatus::duplicate_rank;
  if (hello.service == HandshakeService::probe) return HandshakeStatus::ok;
  const HandshakeService expected = hello.rank < rank_ ? HandshakeService::link : HandshakeService::knock;
  return hello.service == expected ? HandshakeStatus::ok : HandshakeStatus::wrong_service;
}

void Switchboard::accepted(Fd socket, const HandshakeHello& hello) {
  if (hello.service == HandshakeService::probe) return;  // It knows by now.
  if (hello.service == HandshakeService::knock) {
    // Who knocks comes by the rail on which it wants to be called.
    const std::string here = local_address(socket).host;
    const auto at = std::find_if(addresses().begin(), addresses().end(),
                                 [&](const HostPort& address) { return address.host == here; });
    return want(hello.rank, hello.channel, static_cast<int>(at - addresses().begin()));
  }
  connected({hello.rank, hello.channel}, std::move(socket));
}

void Switchboard::connected(Key key, Fd socket) {
  give_up_effort(key);
  StreamOptions options;
  options.congestion = congestion_;
  options.congestion_required = !congestion_.empty();
  options.between_hosts = !on_this_host(key.first);
  if (Status set = set_stream_options(socket, options); !set.ok()) return fail(key, std::move(set));
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[key];
  if (slot.taken) return;  // A second connection for one channel: not ours, hang up.
  slot.socket = std::move(socket);
  announce_change();
}

void Switchboard::fail(Key key, Status why) {
  give_up_effort(key);
  std::lock_guard lock(mutex_);
  Slot& slot = slots_[key];
  if (slot.socket || slot.taken || !slot.failure.ok()) return;
  slot.failure = std::move(why);
  announce_change();
}

void Switchboard::give_up_effort(Key key) {
  const auto found = efforts_.find(key);
  if (found == efforts_.end()) return;
  reactor_.remove(found->second.timer);
  efforts_.erase(found);
}

void Switchboard::on_loss(const Loss& loss) {
  const Status why(ErrorCode::peer_lost, name_of(loss.rank) + " is gone: " + loss.evidence, loss.rank);
  std::vector<Key> pending;
  {
    std::lock_guard lock(mutex_);
    lost_.emplace(loss.rank, why);
    for (const auto& [key, slot] : slots_) {
      if (key.first == loss.rank && slot.wanted && !slot.taken && !slot.socket) pending.push_back(key);
    }
  }
  for (const Key& key : pending) fail(key, why);
}

bool Switchboard::on_this_host(int peer) const {
  const auto& members = session_.members();
  return members[static_cast<std::size_t>(peer)].host_id == members[static_cast<std::size_t>(rank_)].host_id;
}

std::string Switchboard::name_of(int peer) const {
  const Member& member = session_.members()[static_cast<std::size_t>(peer)];
  return "rank " + std::to_string(peer) + " (" + member.host_name + ", pid " + std::to_string(member.pid) +
         ")";
}

}  // namespace lockstep::internal
