// Simulated links: streams of bytes with delays, splits, merges, back-pressure and ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transports/sim/sim_env.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// How the bytes of a stream arrive.
enum class SimDelivery : std::uint8_t {
  whole,     ///< As they were handed over: fewest events.
  split,     ///< Cut at random places, pieces merged at random, short writes.
  bytewise,  ///< Every byte by itself, at a time of its own.
};

struct SimLinkOptions {
  SimDelay delay;  ///< Of every piece, one way; pieces of a stream never overtake.
  SimDelivery delivery = SimDelivery::split;
  std::size_t in_flight = 64 * 1024;  ///< Bytes that fit between sender and reader; >= 1.
};

/// One direction of a connection between two ranks of the schedule. Bytes wait until they arrive, arrived
/// bytes until they are taken; both count as in flight. Steps the reader whenever something arrives, the
/// sender when there is room again.
class SimPipe {
 public:
  SimPipe(SimSchedule& schedule, const SimLinkOptions& options, int sender, int reader)
      : schedule_(schedule), options_(options), sender_(sender), reader_(reader) {}

  /// Sender: takes over some of `bytes` and returns how many. After less than all the sender will be stepped
  /// again.
  std::size_t offer(std::span<const std::byte> bytes);
  /// Sender: true when the reader is known to be gone.
  bool broken() const noexcept { return schedule_.now() >= broken_at_; }

  /// Reader: moves arrived bytes to `into` and returns how many.
  std::size_t take(std::span<std::byte> into);
  /// Reader: true when the end of the stream was reached: nothing is left and nothing will come.
  bool ended();

  /// The sender closed in order: the end follows the last byte.
  void end();
  /// The sender crashed: a random part of what has not arrived is lost, then the stream ends.
  void cut();
  /// The reader is gone: the sender learns of it after a delay.
  void break_off();

 private:
  struct Piece {
    Nanos arrival;
    std::size_t bytes;
  };
  /// How many of `wanted` bytes to accept now.
  std::size_t admit(std::size_t wanted);
  void dispatch(std::size_t bytes);
  void settle();
  std::size_t stored() const noexcept { return bytes_.size() - taken_; }

  SimSchedule& schedule_;
  const SimLinkOptions& options_;
  int sender_, reader_;
  std::vector<std::byte> bytes_;  ///< In flight from index taken_ on.
  std::size_t taken_ = 0;
  std::size_t arrived_ = 0;  ///< Of the bytes in flight, those that the reader may take.
  std::deque<Piece> pieces_;
  Nanos last_arrival_ = 0;
  Nanos last_dispatch_ = -1;
  Nanos ended_at_ = kForever;
  Nanos broken_at_ = kForever;
  bool sender_waits_ = false;
};

/// One rank's end of a connection. `peer` is a rank of the communicator, for messages.
class SimLink final : public Link {
 public:
  SimLink(SimPipe& outgoing, SimPipe& incoming, int peer) noexcept
      : outgoing_(outgoing), incoming_(incoming), peer_(peer) {}

  Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                    SendCursor& cursor) override;
  Result<const FrameHeader*> peek(const Awaited* awaited = nullptr) override;
  Result<std::size_t> read(std::span<std::byte> into) override;
  Result<std::span<const std::byte>> borrow(std::size_t unit, std::size_t most) override;
  void release(std::size_t bytes) override;
  void pop() override;
  pollfd poll_entry() const override { return {-1, 0, 0}; }
  std::uint64_t bytes_sent() const override { return sent_; }

 private:
  std::size_t held() const noexcept { return hold_.size() - hold_begin_; }
  /// Remembers it: `failure` is the answer to every later call in its direction.
  Status lost(Status& failure);
  /// Fills hold_ with up to `bytes` of the payload, the first of them aligned to 16.
  void refill_hold(std::size_t unit, std::size_t bytes);

  SimPipe& outgoing_;
  SimPipe& incoming_;
  int peer_;
  Status send_failure_, receive_failure_;
  FrameHeader header_;
  std::size_t header_bytes_ = 0;
  std::uint64_t payload_left_ = 0;
  std::vector<std::byte> hold_;  ///< Payload taken from the pipe for borrow(), from index hold_begin_ on.
  std::size_t hold_begin_ = 0;
  std::uint64_t sent_ = 0;
};

}  // namespace lockstep::internal
