// StripedLink: one link over several sockets, for networks where one TCP connection cannot fill the wire.
//
// Messages up to kStripeThreshold travel over the first socket as they are. A larger one is announced there
// by its header with bytes = 0 and reserved = the size; its payload follows in units of kStripeUnit, unit i
// as a message of its own (index = i) over socket i modulo the number of sockets. The receiver takes the
// units in order; meanwhile the kernel fills the other sockets' buffers.
#pragma once

#include <memory>
#include <vector>

#include "lib/net/fd.hpp"
#include "transports/tcp/tcp_link.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

class StripedLink final : public Link {
 public:
  /// `links`: at least two, all to `peer`, in the same order on both sides.
  static Result<std::unique_ptr<StripedLink>> make(std::vector<std::unique_ptr<TcpLink>> links, int peer);

  Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                    SendCursor& cursor) override;
  Result<const FrameHeader*> peek(const Awaited* awaited = nullptr) override;
  Result<std::size_t> read(std::span<std::byte> into) override;
  Result<std::span<const std::byte>> borrow(std::size_t unit, std::size_t most) override;
  void release(std::size_t bytes) override;
  void pop() override;
  /// Watches through an epoll descriptor, which this call adjusts to what the link waits for now.
  pollfd poll_entry() const override;
  std::uint64_t bytes_sent() const override;

 private:
  // What one socket has sent of the outgoing striped message.
  struct Outgoing {
    std::size_t next_unit = 0;
    std::size_t finished = 0;  ///< Bytes of its units before next_unit.
    SendCursor cursor;
  };
  StripedLink(std::vector<std::unique_ptr<TcpLink>> links, int peer, Fd epoll);
  void start_sending();
  Result<bool> send_announcement(const FrameHeader& header, std::uint64_t payload_bytes);
  Result<bool> send_units(std::size_t socket, std::span<const std::byte> payload);
  TcpLink& current() const { return *links_[unit_ % links_.size()]; }
  std::size_t unit_bytes(std::uint64_t unit, std::uint64_t total) const;
  Result<bool> open_unit();
  void consumed(std::size_t bytes);
  std::uint32_t wanted_events(std::size_t socket) const;

  const std::vector<std::unique_ptr<TcpLink>> links_;
  const int peer_;
  const Fd epoll_;
  mutable std::vector<std::uint32_t> watched_;  ///< Events that epoll_ has of each socket.

  std::vector<Outgoing> outgoing_;
  SendCursor announcement_;

  FrameHeader header_;  ///< Of the striped head message.
  bool striped_head_ = false;
  std::uint64_t unit_ = 0;     ///< Being received.
  std::size_t unit_left_ = 0;  ///< Bytes of it; 0 = its header is not here yet.
  std::uint64_t left_ = 0;     ///< Bytes of the message.
};

}  // namespace lockstep::internal
