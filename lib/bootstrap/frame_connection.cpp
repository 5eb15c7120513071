#include "lib/bootstrap/frame_connection.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/store_protocol.hpp"
#include "lib/bootstrap/wire.hpp"
#include "lib/net/stream_io.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kReadBytes = 64
                                   << 10;  // Per event, so that one busy client does not keep others waiting.

}  // namespace

std::shared_ptr<FrameConnection> FrameConnection::open(Reactor& reactor, SilenceWatch& watch, Fd socket,
                                                       std::size_t most, Events events) {
  std::shared_ptr<FrameConnection> connection(
      new FrameConnection(reactor, watch, std::move(socket), most, std::move(events)));
  connection->start();
  return connection;
}

FrameConnection::FrameConnection(Reactor& reactor, SilenceWatch& watch, Fd socket, std::size_t most,
                                 Events events)
    : reactor_(reactor),
      silence_(watch),
      socket_(std::move(socket)),
      most_(most),
      events_(std::move(events)) {}

FrameConnection::~FrameConnection() { stop(); }

void FrameConnection::stop() {
  reactor_.remove(std::exchange(watch_, 0));
  silence_.remove(socket_.get());
}

void FrameConnection::start() {
  (void)notice_vanished_peer(socket_);  // Refused, its end is noticed all the same when something is sent.
  if (!has_loopback_peer(socket_)) silence_.add(socket_.get());
  interest_ = EPOLLIN;
  watch_ = reactor_.watch(socket_.get(), interest_, [weak = weak_from_this()](std::uint32_t events) {
    if (const auto self = weak.lock()) self->handle(events);
  });
}

void FrameConnection::send(std::string_view frame) {
  if (unsent_.size() - sent_ + frame.size() > kMaxUnsentBytes) {
    // The end of the stream, noticed by the reactor, becomes closed().
    shutdown(socket_.get(), SHUT_RDWR);
    return;
  }
  unsent_ += frame;
  write_some();
  update_interest();
}

void FrameConnection::handle(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) write_some();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read_some();
  update_interest();
}

void FrameConnection::read_some() {
  const std::size_t before = received_.size();
  received_.resize(before + kReadBytes);  // Nothing is taken for which there is no room.
  const auto room = std::span(received_).subspan(before);
  const Transfer some = receive_some(socket_.get(), std::as_writable_bytes(room));
  received_.resize(before + some.bytes);
  if (some.ended || some.error != 0) return hang_up(ended(some.error));
  if (Status status = take_frames(); !status.ok()) hang_up(std::move(status));
}

/// One that was half handled must not be handled again.
Status FrameConnection::take_frames() try {
  std::size_t taken = 0;
  for (;;) {
    const auto body = first_frame(as_bytes(std::string_view(received_).substr(taken)), most_);
    if (!body.ok()) return body.status();
    if (!body.value()) break;
    LOCKSTEP_RETURN_IF_ERROR(events_.frame(*body.value()));
    taken += kFrameOverhead + body.value()->size();
  }
  received_.erase(0, taken);
  return Status();
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory, words_of([] { return "memory ran out for what came from it"; }));
}

void FrameConnection::write_some() {
  while (sent_ < unsent_.size()) {
    const Transfer some = send_some(socket_.get(), as_bytes(unsent_).subspan(sent_));
    if (some.bytes == 0) return;  // Full, or broken: then reading says so.
    sent_ += some.bytes;
  }
  unsent_.clear();
  sent_ = 0;
}

void FrameConnection::update_interest() {
  const std::uint32_t wanted = unsent_.empty() ? std::uint32_t{EPOLLIN} : std::uint32_t{EPOLLIN | EPOLLOUT};
  if (wanted == interest_ || watch_ == 0) return;
  interest_ = wanted;
  reactor_.modify(watch_, interest_);
}

Status FrameConnection::ended(int error) {
  const bool silent = error == ETIMEDOUT || silence_.fell_silent(socket_.get());
  if (silent) return Status(ErrorCode::peer_lost, silence_text());
  if (error == 0) return Status(ErrorCode::peer_lost, "its connection was closed");
  if (error == ECONNRESET || error == EPIPE) return Status(ErrorCode::peer_lost, "its connection was reset");
  return Status(ErrorCode::peer_lost, std::string("its connection failed: ") + std::strerror(error));
}

void FrameConnection::hang_up(Status why) {
  if (watch_ == 0) return;
  events_.closed(why);  // First: without memory for it the next event comes back to it.
  stop();
  socket_.reset();
}

}  // namespace lockstep::internal
