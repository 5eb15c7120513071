// TcpLink: messages over one connected TCP socket, as header and payload one behind the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/net/fd.hpp"
#include "lib/net/silence_watch.hpp"
#include "lib/net/stream_io.hpp"
#include "transports/tcp/bounce.hpp"
#include "transports/tcp/receive_buffer.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// Contract: transports/transport.hpp. One system call sends a header with its payload, and one receives
/// them: an awaited payload goes straight to where it is wanted. No memory is ever allocated because of what
/// a peer says. Errors are final for their direction: what the peer said before a send failed (why it gave
/// up) can still be read.
class TcpLink final : public Link, private Bounce::Tenant {
 public:
  /// Takes over a connected non-blocking socket; nothing but frames of `peer` travels on it. `peer` is who
  /// errors name. The links of one transport share a bounce. `watch`, which outlives the link, may be null.
  TcpLink(Fd socket, int peer, std::shared_ptr<Bounce> bounce = std::make_shared<Bounce>(),
          SilenceWatch* watch = nullptr);
  ~TcpLink() override;
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;

  Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                    SendCursor& cursor) override;
  Result<const FrameHeader*> peek(const Awaited* awaited = nullptr) override;
  Result<std::size_t> read(std::span<std::byte> into) override;
  Result<std::span<const std::byte>> borrow(std::size_t unit, std::size_t most) override;
  void release(std::size_t bytes) override;
  void pop() override;
  pollfd poll_entry() const override;
  std::uint64_t bytes_sent() const override { return bytes_sent_; }

  /// The socket, when the link ends before its connection: nothing else may be called any more.
  Fd take_socket();

 private:
  Transfer send_rest(const FrameHeader& header, std::span<const std::byte> payload, const SendCursor& cursor);
  /// One receive into these pieces, one behind the other. How many bytes came: none for now, or (see
  /// receive_failure_) for ever.
  std::size_t receive(std::span<const iovec> pieces);
  /// One receive of a header, and of as much of the awaited payload as comes with it.
  void receive_awaited(const Awaited& awaited);
  std::size_t receive_in_one_piece(std::span<std::byte> place, std::size_t behind);
  std::size_t receive_in_pieces(std::span<std::byte> place, std::size_t behind);
  std::size_t read_wire(std::span<std::byte> into);
  void refill_lent();
  void vacate() override;
  Status lost(std::string evidence) const;

  Fd socket_;
  const int peer_;
  const std::string who_;  ///< What errors call the peer, with its address while that is still known.
  const std::shared_ptr<Bounce> bounce_;
  SilenceWatch* const watch_;
  // What arrived and is not consumed, in the order of the stream: first payload of the head message that lies
  // in its place or in the bounce (one of the two at most), then the buffer.
  std::size_t placed_ = 0;
  std::span<const std::byte> lent_;
  ReceiveBuffer buffer_;
  FrameHeader header_;
  bool have_header_ = false;
  bool send_unfinished_ = false;
  std::uint64_t payload_left_ = 0;  ///< Of the head message.
  Status send_failure_;
  Status receive_failure_;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace lockstep::internal
