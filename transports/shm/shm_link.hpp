// A link over two byte rings in shared memory, one for each direction.
#pragma once

#include "transports/shm/shm_domain.hpp"
#include "transports/shm/shm_ring.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// The contract is Link's. A message lies in the ring as header, payload, padding to the granule; messages
/// larger than the ring stream through it. The peer's death does not show here (its memory stays mapped): the
/// session watches processes. Its orderly close does.
class ShmLink final : public Link {
 public:
  /// `domain` and `env` outlive the link. Errors call the peer `rank`.
  ShmLink(ShmDomain& domain, int peer, int rank, Channel channel, Env& env);

  Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                    SendCursor& cursor) override;
  Result<const FrameHeader*> peek(const Awaited* awaited = nullptr) override;
  Result<std::size_t> read(std::span<std::byte> into) override;
  Result<std::span<const std::byte>> borrow(std::size_t unit, std::size_t most) override;
  void release(std::size_t bytes) override;
  void pop() override;
  pollfd poll_entry() const override { return {-1, 0, 0}; }
  std::uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  void publish_sent();
  void publish_consumed();
  void took(std::size_t bytes);
  Result<bool> stopped() const;
  Status fault(RingState state) const;

  ShmDomain& domain_;
  const int peer_;
  const int rank_;
  RingWriter out_;
  RingReader in_;
  FrameHeader header_;  ///< A copy: its bytes are the peer's to overwrite once the payload streams.
  bool have_header_ = false;
  std::uint64_t payload_left_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace lockstep::internal
