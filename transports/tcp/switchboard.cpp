#include "transports/tcp/switchboard.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "lib/base/config.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/net/stream_io.hpp"
#include "lib/net/tcp_socket.hpp"
#include "transports/tcp/limits.hpp"
#include "transports/tcp/published_address.hpp"

namespace lockstep::internal {
namespace {

constexpr const char* kUnreached = "cannot be reached";  // Who it is stands in front.

Result<int> sockets_of_link(int usual) {
  if (config_is_set("LOCKSTEP_TCP_SOCKETS")) return static_cast<int>(config_integer("LOCKSTEP_TCP_SOCKETS"));
  if (usual >= 1 && usual <= kMaxSockets) return usual;
  return Status(ErrorCode::configuration, "tcp_sockets of the tuning file is " + std::to_string(usual) +
                                              ", but a link has 1 to " + std::to_string(kMaxSockets) +
                                              " sockets");
}

/// What no link could have is an error of the start, not of the first link.
Status check_congestion(const std::string& name) {
  if (name.empty()) return {};
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket) return system_error("cannot create a socket", errno);
  return set_stream_options(socket, {name, true, false});
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

Result<std::unique_ptr<Switchboard>> Switchboard::make(Session& session, Env& env,
                                                       std::chrono::milliseconds timeout,
                                                       int sockets_per_link) {
  auto sockets = sockets_of_link(sockets_per_link);
  if (!sockets.ok()) return sockets.status();
  LOCKSTEP_RETURN_IF_ERROR(check_congestion(config_text("LOCKSTEP_TCP_CONGESTION")));
  auto listeners = listen_for_peers(session);
  if (!listeners.ok()) return listeners.status();
  std::unique_ptr<Switchboard> board(new Switchboard(session, env, *sockets));
  board->open(std::move(*listeners));
  const PublishedAddress mine{board->addresses(), board->sockets_, board->own_rails_};
  auto ways = find_ways(session, env, board->reactor_, board->key_, mine, timeout);
  if (!ways.ok()) return ways.status();
  board->adopt(std::move(*ways));
  return board;
}

void Switchboard::open(Listeners listeners) {
  own_rails_ = listeners.rails;
  for (const Fd& listener : listeners.sockets) own_addresses_.push_back(local_address(listener));
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

// From now on others are called; so are those that were wanted before, by peers that were ready earlier.
void Switchboard::adopt(Ways ways) {
  reactor_.run_there([&] {
    ways_ = std::move(ways);
    met_ = true;
    std::vector<std::pair<Key, int>> wanted;
    for (const auto& [key, effort] : efforts_) wanted.emplace_back(key, effort.rail);
    for (const auto& [key, rail] : wanted) begin(key, rail);
  });
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
  std::lock_guard lock(mutex_);
  forgotten_.remove(channel);
  want_locked({peer, channel}, rail);
}

void Switchboard::want_locked(Key key, int rail) {
  Slot& slot = slots_[key];
  if (slot.wanted || slot.socket) return;
  slot.wanted = true;
  if (const auto lost = lost_.find(key.first); lost != lost_.end()) {
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

Result<std::optional<Fd>> Switchboard::take(int peer, std::uint64_t channel, std::optional<int> called) {
  std::lock_guard lock(mutex_);
  const auto found = slots_.find({peer, channel});
  if (found == slots_.end()) return std::optional<Fd>();
  Slot& slot = found->second;
  if (slot.socket) {
    slot.taken = true;
    return std::exchange(slot.socket, std::nullopt);
  }
  if (!slot.failure.ok()) return named(slot.failure, peer, called.value_or(peer));
  return std::optional<Fd>();
}

bool Switchboard::is_under_way(int peer, std::uint64_t channel) {
  std::lock_guard lock(mutex_);
  const auto found = slots_.find({peer, channel});
  if (found == slots_.end()) return false;
  const Slot& slot = found->second;
  return slot.socket || ((slot.wanted || slot.coming) && !slot.taken && slot.failure.ok());
}

void Switchboard::forget(std::uint64_t channel) {
  std::lock_guard lock(mutex_);
  forgotten_.add(channel);
  for (int peer = 0; peer < session_.size(); ++peer) {
    const Key key{peer, channel};
    const auto found = slots_.find(key);
    if (found == slots_.end()) continue;
    const bool under_way = found->second.wanted && !found->second.taken && !found->second.socket;
    slots_.erase(found);
    if (under_way) post([this, key] { give_up_effort(key); });
  }
}

bool Switchboard::is_forgotten(std::uint64_t channel) {
  std::lock_guard lock(mutex_);
  return forgotten_.has(channel);
}

void Switchboard::Forgotten::add(std::uint64_t channel) {
  if (!channels_.insert(channel).second) return;
  order_.push_back(channel);
  if (order_.size() <= kForgottenChannels) return;
  channels_.erase(order_.front());
  order_.pop_front();
}

void Switchboard::attach(int eventfd) {
  std::lock_guard lock(mutex_);
  attached_.insert(eventfd);
}

void Switchboard::detach(int eventfd) {
  std::lock_guard lock(mutex_);
  attached_.erase(eventfd);
}

std::uint64_t Switchboard::drain(int eventfd) {
  std::lock_guard lock(mutex_);
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t drained = ::read(eventfd, &rung, sizeof rung);
  return changes();
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
  if (!met_) return;
  if (rank_ < key.first) return call(key);
  call_after(kKnockDelay, key);
}

void Switchboard::call_after(std::chrono::milliseconds delay, Key key) {
  efforts_[key].timer = reactor_.at(env_.now() + to_nanos(delay), [this, key] { call(key); });
}

// All addresses of the peer, first that of the rail.
std::vector<HostPort> Switchboard::ways_to(int peer, int rail) const {
  std::vector<HostPort> ways = ways_.addresses[static_cast<std::size_t>(peer)];
  const int rails = std::min(own_rails_, ways_.rails[static_cast<std::size_t>(peer)]);
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
      reactor_, env_, key_, hello, ways_to(peer, effort.rail),
      [this, key](AddressRace::Outcome outcome, Status why) { called(key, outcome, std::move(why)); });
  effort.call->start();
}

void Switchboard::called(Key key, AddressRace::Outcome outcome, Status why) try {
  Effort& effort = efforts_[key];
  const std::unique_ptr<AddressRace> ended = std::move(effort.call);
  const bool knocked = rank_ > key.first;
  if (outcome == AddressRace::Outcome::connected) {
    if (!knocked) return connected(key, ended->take_socket());
    effort.attempts = 0;
    return call_after(kKnockAgain, key);
  }
  if (outcome == AddressRace::Outcome::silent) {  // Only who waits knows for how long.
    if (is_forgotten(key.second)) return give_up_effort(key);
    effort.attempts = 0;
    return call(key);
  }
  ++effort.attempts;
  if (outcome == AddressRace::Outcome::broken && tries_again(effort)) return call(key);
  fail(key, why.with_context(kUnreached));
} catch (const std::bad_alloc&) {  // The race that called is over: nobody would try again.
  fail_without_memory(key);
}

/// After an attempt that broke.
bool Switchboard::tries_again(const Effort& effort) const {
  const Nanos now = env_.now();
  const bool late = now - effort.called >= to_nanos(kHelloPatience);
  return effort.attempts < kConnectAttempts || (late && now - effort.began < to_nanos(kLateHelloPatience));
}

HandshakeStatus Switchboard::admit(const HandshakeHello& hello) const {
  if (hello.rank == rank_) return HandshakeStatus::duplicate_rank;
  if (hello.service == HandshakeService::probe) return HandshakeStatus::ok;
  const HandshakeService expected = hello.rank < rank_ ? HandshakeService::link : HandshakeService::knock;
  return hello.service == expected ? HandshakeStatus::ok : HandshakeStatus::wrong_service;
}

void Switchboard::accepted(Fd socket, const HandshakeHello& hello) try {
  if (hello.service == HandshakeService::link)
    return accepted_link({hello.rank, hello.channel}, std::move(socket));
  if (!send_receipt(socket)) return;                     // The peer calls again.
  if (hello.service == HandshakeService::probe) return;  // It knows by now.
  // Who knocks comes by the rail on which it wants to be called.
  const std::string here = local_address(socket).host;
  const auto at = std::find_if(addresses().begin(), addresses().end(),
                               [&](const HostPort& address) { return address.host == here; });
  knocked({hello.rank, hello.channel}, static_cast<int>(at - addresses().begin()));
} catch (const std::bad_alloc&) {  // The peer has a connection that ended.
  fail_without_memory({hello.rank, hello.channel});
}

// From the receipt on the peer may speak, and end another link: whoever sees that shall find this one under
// way.
void Switchboard::accepted_link(Key key, Fd socket) {
  {
    std::lock_guard lock(mutex_);
    if (!send_receipt(socket)) return;  // The peer calls again.
    if (!forgotten_.has(key.second)) slots_[key].coming = true;
  }
  connected(key, std::move(socket));
}

// A peer that asks for a forgotten channel is called, too: it shall see the connection end.
void Switchboard::knocked(Key key, int rail) {
  {
    std::lock_guard lock(mutex_);
    if (!forgotten_.has(key.second)) return want_locked(key, rail);
  }
  if (efforts_.count(key) == 0) begin(key, rail);
}

void Switchboard::connected(Key key, Fd socket) {
  give_up_effort(key);
  StreamOptions options;
  options.congestion = congestion_;
  options.congestion_required = !congestion_.empty();
  options.between_hosts = !on_this_host(key.first);
  if (Status set = set_stream_options(socket, options); !set.ok())
    return fail(key, set.with_context(kUnreached));
  std::lock_guard lock(mutex_);
  if (forgotten_.has(key.second)) return;  // Nobody will take it: hang up.
  Slot& slot = slots_[key];
  if (slot.taken) return;  // A second connection for one channel: not ours, hang up.
  slot.socket = std::move(socket);
  announce_change();
}

void Switchboard::fail(Key key, Status why) {
  give_up_effort(key);
  std::lock_guard lock(mutex_);
  if (forgotten_.has(key.second)) return;
  Slot& slot = slots_[key];
  if (slot.socket || slot.taken || !slot.failure.ok()) return;
  slot.failure = std::move(why);
  announce_change();
}

void Switchboard::fail_without_memory(Key key) try {
  fail(key, Status(ErrorCode::out_of_memory,
                   words_of([] { return std::string(kUnreached) + ": memory ran out for a connection"; })));
} catch (const std::bad_alloc&) {  // Nobody here wants it yet.
}

void Switchboard::give_up_effort(Key key) {
  const auto found = efforts_.find(key);
  if (found == efforts_.end()) return;
  reactor_.remove(found->second.timer);
  efforts_.erase(found);
}

void Switchboard::on_loss(const Loss& loss) {
  const Status why(ErrorCode::peer_lost, "is gone: " + loss.evidence, loss.rank);
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

Status Switchboard::named(const Status& why, int peer, int number) const {
  const Member& member = session_.members()[static_cast<std::size_t>(peer)];
  return Status(why.code(), words_of([&] { return who_is(number, member) + " " + why.message(); }),
                why.culprit() < 0 ? why.culprit() : number);
}

}  // namespace lockstep::internal
