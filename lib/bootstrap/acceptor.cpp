#include "lib/bootstrap/acceptor.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "lib/base/log.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/net/stream_io.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {

/// One handshake under way.
class HalfOpen : public std::enable_shared_from_this<HalfOpen> {
 public:
  /// `done`: it ended. `overdue`: it may go from now on.
  HalfOpen(Reactor& reactor, Fd socket, HandshakeServer handshake, std::function<void()> done,
           std::function<void()> overdue)
      : reactor_(reactor),
        socket_(std::move(socket)),
        handshake_(std::move(handshake)),
        done_(std::move(done)),
        overdue_(std::move(overdue)) {}
  ~HalfOpen() { stop(); }
  HalfOpen(const HalfOpen&) = delete;
  HalfOpen& operator=(const HalfOpen&) = delete;

  void start() {
    const auto weak = weak_from_this();
    watch_ = reactor_.watch(socket_.get(), EPOLLIN, [weak](std::uint32_t) {
      if (const auto self = weak.lock()) self->move_bytes();
    });
    end_after(kHandshakeDeadline);
    if (watch_ == 0) return done_();
    move_bytes();  // A client that had to wait for this has said its hello.
  }
  /// When others may have its place, if the peer says nothing more until then; kForever where it is answered
  /// and its proof not overdue.
  Nanos may_go_at() const {
    if (late_) return opened_;
    return answered_ ? kForever : opened_ + to_nanos(kHelloPatience);
  }
  /// For one that may go: others need its place.
  void make_room() {
    reactor_.remove(std::exchange(timer_, 0));
    end_of_time();
  }
  /// Called once by done(): the result, and the socket with it.
  HandshakeServer& handshake() { return handshake_; }
  Fd take_socket() {
    stop();
    return std::move(socket_);
  }

 private:
  void end_after(std::chrono::milliseconds time) {
    const Reactor::Handle timer = reactor_.at(real_env().now() + to_nanos(time), [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->end_of_time();
    });
    reactor_.remove(std::exchange(timer_, timer));
  }
  /// Where there is no memory for it the end stays where it was.
  void extend() try { end_after(kHandshakeDeadline); } catch (const std::bad_alloc&) {
  }

  void stop() {
    reactor_.remove(std::exchange(watch_, 0));
    reactor_.remove(std::exchange(timer_, 0));
  }

  /// What is here already is in time: it was this process that had no turn to look. The peer may hold its
  /// last words for the end of the handshake, and would take a hang-up now for the death of this rank.
  void end_of_time() {
    timer_ = 0;
    move_bytes();
    if (!socket_ || timer_ != 0) return;  // It has ended; or its hello was here, and is answered by now.
    if (!answered_ || late_) return done_();
    late_ = true;
    end_after(kProofDeadline - kHandshakeDeadline);
    overdue_();
  }

  /// Bytes that there was no memory for are gone: the peer sees its connection end, and tries again.
  void move_bytes() try {
    while (handshake_.wanted() > 0) {
      std::array<std::byte, kMaxHandshakeBytes> bytes;
      const Transfer some = receive_some(socket_.get(), std::span(bytes).first(handshake_.wanted()));
      if (some.ended || some.error != 0) return done_();
      if (some.bytes == 0) return;
      handshake_.consume(std::span<const std::byte>(bytes).first(some.bytes));
      // A reply is far smaller than any send buffer: what does not go out at once never will.
      const auto reply = handshake_.outgoing();
      if (reply.empty()) continue;
      if (send_some(socket_.get(), reply).bytes != reply.size()) return done_();
      handshake_.sent(reply.size());
      answered_ = true;
      extend();
    }
    done_();
  } catch (const std::bad_alloc&) {
    done_();
  }

  Reactor& reactor_;
  Fd socket_;
  HandshakeServer handshake_;
  std::function<void()> done_;
  std::function<void()> overdue_;
  const Nanos opened_ = real_env().now();
  bool answered_ = false;
  bool late_ = false;  ///< Its proof is owed for longer than kHandshakeDeadline.
  Reactor::Handle watch_ = 0;
  Reactor::Handle timer_ = 0;
};

namespace {

/// Once for a process: those who are not let in only say that nobody answers.
void tell_of_deafness(std::int32_t rank, const Status& why) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  warn((rank < 0 ? "this process" : "rank " + std::to_string(rank)) +
       " cannot let in the ranks that connect to it: " + why.message());
}

}  // namespace

Acceptor::Acceptor(Reactor& reactor, Fd listener, HandshakeKey key, std::int32_t rank, std::int32_t world,
                   Events events)
    : reactor_(reactor),
      listener_(std::move(listener)),
      key_(std::move(key)),
      rank_(rank),
      world_(world),
      events_(std::move(events)) {
  listen_again();
}

Acceptor::~Acceptor() {
  reactor_.remove(watch_);
  reactor_.remove(pause_);
  reactor_.remove(room_);
}

void Acceptor::listen_again() {
  reactor_.remove(std::exchange(room_, 0));
  if (watch_ == 0 && pause_ == 0)
    watch_ = reactor_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_clients(); });
}

bool Acceptor::is_full() const { return half_open_.size() >= kMaxHalfOpen; }

/// Somebody waits, or nobody would be asked to go. Who waits behind that one is told of by the next event.
void Acceptor::accept_clients() {
  if (is_full() && !make_room()) return await_room();
  for (std::size_t accepted = 0; !is_full() && accepted < kMaxHalfOpen; ++accepted) {
    auto socket = accept_connection(listener_);
    if (!socket.ok()) return pause(socket.status());
    if (!*socket) return;  // Nobody waits any more.
    start_handshake(std::move(**socket));
  }
}

bool Acceptor::make_room() {
  const Nanos now = real_env().now();
  for (auto next = half_open_.begin(); is_full() && next != half_open_.end();) {
    const std::shared_ptr<HalfOpen> oldest = next->second;  // Outlives its place in the map.
    ++next;
    if (oldest->may_go_at() <= now) oldest->make_room();  // But what it has just said may keep its place.
  }
  return !is_full();
}

void Acceptor::await_room() {
  Nanos first = kForever;
  for (const auto& [id, half_open] : half_open_) first = std::min(first, half_open->may_go_at());
  if (first != kForever) room_ = reactor_.at(first, [this] { listen_again(); });
  reactor_.remove(std::exchange(watch_, 0));
}

void Acceptor::pause(const Status& why) {
  tell_of_deafness(rank_, why);
  pause_ = reactor_.at(real_env().now() + to_nanos(kAcceptPause), [this] {
    pause_ = 0;
    listen_again();
  });
  reactor_.remove(std::exchange(watch_, 0));
}

void Acceptor::start_handshake(Fd socket) {
  const int on = 1;
  (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  HandshakeServer handshake(key_, {rank_, world_, events_.admit}, remote_address(socket).text());
  const std::uint64_t id = ++next_id_;
  auto half_open = std::make_shared<HalfOpen>(
      reactor_, std::move(socket), std::move(handshake), [this, id] { finish_handshake(id); },
      [this] { listen_again(); });
  half_open_.emplace(id, half_open);
  try {
    half_open->start();
  } catch (const std::bad_alloc&) {  // The caller sees its connection end, and tries again.
    half_open_.erase(id);
  }
}

void Acceptor::finish_handshake(std::uint64_t id) {
  const auto found = half_open_.find(id);
  if (found == half_open_.end()) return;
  const std::shared_ptr<HalfOpen> half_open = std::move(found->second);
  half_open_.erase(found);
  listen_again();
  const HandshakeServer& handshake = half_open->handshake();
  Fd socket = half_open->take_socket();
  if (handshake.state() == HandshakeState::established) {
    events_.accepted(std::move(socket), handshake.hello());
  } else if (handshake.state() == HandshakeState::failed && events_.refused) {
    events_.refused(handshake.hello(), handshake.verdict(), handshake.status());
  }
}

}  // namespace lockstep::internal
