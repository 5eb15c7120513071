// TcpLink: messages over one connected TCP socket, as header and payload one behind the other.
#pragma once

#include <cstdint>
#include <string>

#include "lib/net/fd.hpp"
#include "lib/net/stream_io.hpp"
#include "transports/tcp/receive_buffer.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// Contract: transports/transport.hpp. One system call sends a header with its payload, one receives a small
/// message; large payloads go straight to where they are read. No memory is ever allocated because of what a
/// peer says. Errors are final for their direction: what the peer said before a send failed (why it gave up)
/// can still be read.
class TcpLink final : public Link {
 public:
  /// Takes over a connected non-blocking socket; nothing but frames of `peer` travels on it. `peer` is who
  /// errors name.
  TcpLink(Fd socket, int peer);

  Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                    SendCursor& cursor) override;
  Result<const FrameHeader*> peek() override;
  Result<std::size_t> read(std::span<std::byte> into) override;
  Result<std::span<const std::byte>> borrow(std::size_t unit, std::size_t most) override;
  void release(std::size_t bytes) override;
  void pop() override;
  pollfd poll_entry() const override;
  std::uint64_t bytes_sent() const override { return bytes_sent_; }
  std::uint64_t bytes_received() const override { return bytes_received_; }

  /// No more sends; what was sent is still delivered.
  void finish_sending();

 private:
  Transfer send_rest(const FrameHeader& header, std::span<const std::byte> payload, const SendCursor& cursor);
  /// One receive of at most `bytes` into the buffer. False: nothing came, for now or (see receive_failure_)
  /// for ever.
  bool fill(std::size_t bytes);
  bool account(const Transfer& transfer);
  std::size_t read_buffered(std::span<std::byte> into);
  std::size_t read_wire(std::span<std::byte> into);
  Status lost(const std::string& evidence) const;

  const Fd socket_;
  const int peer_;
  const std::string address_;  ///< The peer's, while it is still known.
  ReceiveBuffer buffer_;
  FrameHeader header_;
  bool have_header_ = false;
  bool send_unfinished_ = false;
  std::uint64_t payload_left_ = 0;  ///< Of the head message.
  Status send_failure_;
  Status receive_failure_;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace lockstep::internal
