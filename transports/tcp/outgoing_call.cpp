#include "transports/tcp/outgoing_call.hpp"

#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "lib/net/stream_io.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {

OutgoingCall::OutgoingCall(Reactor& reactor, Env& env, const HandshakeKey& key, const HandshakeHello& hello,
                           const HostPort& to, std::function<void(Outcome, Status)> done,
                           std::function<void()> passed)
    : reactor_(reactor),
      env_(env),
      handshake_(key, hello, to.text()),
      to_(to),
      peer_(hello.peer),
      done_(std::move(done)),
      passed_(std::move(passed)) {}

void OutgoingCall::start() {
  Status why;
  try {
    why = open();
  } catch (const std::bad_alloc&) {
    return give_up();
  }
  if (!why.ok()) finish(Outcome::refused, std::move(why));
}

Status OutgoingCall::open() {
  auto socket = start_connect(to_);
  if (!socket.ok()) return socket.status().blamed_on(peer_);
  socket_ = std::move(*socket);
  events_ = EPOLLOUT;
  watch_ = reactor_.watch(socket_.get(), events_, [this](std::uint32_t) { step(); });
  if (watch_ == 0) return system_error("cannot watch a connection", errno);
  timer_ = reactor_.at(env_.now() + to_nanos(kConnectDeadline), [this] {
    finish(connected_ ? Outcome::silent : Outcome::broken,
           Status(ErrorCode::peer_lost,
                  "no answer from " + to_.text() + " within " + std::to_string(kConnectDeadline.count()) +
                      " s: check that the hosts can reach each other (LOCKSTEP_IFNAME)",
                  peer_));
  });
  return {};
}

/// Without memory; there may be some for another attempt.
void OutgoingCall::give_up() {
  finish(Outcome::broken,
         Status(ErrorCode::out_of_memory, words_of([] { return "memory ran out for a connection"; })));
}

void OutgoingCall::stop() {
  reactor_.remove(std::exchange(watch_, 0));
  reactor_.remove(std::exchange(timer_, 0));
}

Fd OutgoingCall::take_socket() {
  stop();
  return std::move(socket_);
}

void OutgoingCall::finish(Outcome outcome, Status why) {
  stop();
  const auto done = std::exchange(done_, nullptr);  // May destroy this.
  if (done) done(outcome, std::move(why));          // Not again where it found no memory.
}

void OutgoingCall::step() try {
  if (!connected_) {
    const int error = connect_error(socket_);
    if (error != 0) {
      const std::string evidence =
          error == ECONNREFUSED ? "nobody listens there any more" : std::strerror(error);
      return finish(Outcome::refused,
                    Status(ErrorCode::peer_lost, "cannot connect to " + to_.text() + ": " + evidence, peer_));
    }
    connected_ = true;
  }
  while (!handshake_.outgoing().empty() || handshake_.wanted() > 0) {
    const bool moved = handshake_.outgoing().empty() ? receive_wanted() : send_outgoing();
    if (!moved) return;  // Waits, or has finished and destroyed this.
  }
  if (handshake_.state() != HandshakeState::established)
    return finish(Outcome::refused, handshake_.status().blamed_on(peer_));
  if (passed_) return await_receipt();
  finish(Outcome::connected, Status());
} catch (const std::bad_alloc&) {  // Bytes that were read may be lost with it.
  give_up();
}

bool OutgoingCall::send_outgoing() {
  const Transfer sent = send_some(socket_.get(), handshake_.outgoing());
  if (sent.bytes > 0) {
    handshake_.sent(sent.bytes);
    return true;
  }
  if (sent.error == 0) {
    wait_for(EPOLLOUT);
  } else {
    broken_off(std::strerror(sent.error));
  }
  return false;
}

bool OutgoingCall::receive_wanted() {
  std::array<std::byte, kMaxHandshakeBytes> bytes;
  const std::size_t got = receive(std::span(bytes).first(handshake_.wanted()));
  if (got == 0) return false;
  handshake_.consume(std::span<const std::byte>(bytes).first(got));
  return true;
}

void OutgoingCall::await_receipt() {
  if (!std::exchange(has_passed_, true)) passed_();
  std::byte receipt{};
  if (receive(std::span(&receipt, 1)) > 0) finish(Outcome::connected, Status());
}

/// 0: waits, or has finished and destroyed this.
std::size_t OutgoingCall::receive(std::span<std::byte> into) {
  const Transfer got = receive_some(socket_.get(), into);
  if (got.ended || got.error != 0) {
    broken_off(got.ended ? "it closed the connection" : std::strerror(got.error));
  } else if (got.bytes == 0) {
    wait_for(EPOLLIN);
  }
  return got.bytes;
}

void OutgoingCall::broken_off(const std::string& evidence) {
  finish(Outcome::broken,
         Status(ErrorCode::peer_lost, to_.text() + " broke the handshake off: " + evidence, peer_));
}

void OutgoingCall::wait_for(std::uint32_t events) {
  if (events_ == events) return;
  events_ = events;
  reactor_.modify(watch_, events);
}

bool send_receipt(const Fd& socket) {
  constexpr std::byte kReceipt{1};
  return send_some(socket.get(), std::span(&kReceipt, 1)).bytes == 1;  // There is room: it is the first word.
}

}  // namespace lockstep::internal
