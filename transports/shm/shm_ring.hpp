// A byte ring in shared memory with one writer and one reader (model-checked in tests/model/ring.pml).
//
// Counters rise for ever; a byte's place is its number modulo kRingBytes. The writer publishes `written`
// after the bytes, the reader `consumed` after it read them; each keeps its last look at the other's counter
// and looks again only when that does not suffice, so the two lines move between the cores as seldom as
// possible. Both ends belong to different processes: each checks the other's counter before it believes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/reduce/hand_over.hpp"
#include "transports/domain.hpp"
#include "transports/shm/limits.hpp"

namespace lockstep::internal {

static_assert((kRingBytes & (kRingBytes - 1)) == 0 && kRingBytes % kRingGranule == 0);

struct RingControl {
  alignas(kLine) std::atomic<std::uint64_t> written;   ///< The writer's line.
  std::atomic<std::uint32_t> writer_closed;            ///< Set after the last byte was published.
  alignas(kLine) std::atomic<std::uint64_t> consumed;  ///< The reader's line.
  std::atomic<std::uint32_t> reader_closed;
};

struct Ring {
  RingControl* control = nullptr;
  std::byte* bytes = nullptr;
};

/// What a look at the other end's counter showed.
enum class RingState {
  open,
  closed,   ///< The other end closed; the reader learns it only when everything was read.
  corrupt,  ///< A counter that no reader or writer of ours leaves.
};

/// Not thread-safe. Nothing is visible to the reader before publish().
class RingWriter {
 public:
  /// `env` outlives it.
  RingWriter(Ring ring, Env& env) noexcept : ring_(ring), hand_over_(env) {}

  /// Bytes that can be put now; looks at the reader's counter when fewer than `wanted` are known to be free.
  /// 0 unless state() is open.
  std::size_t room(std::size_t wanted) noexcept;
  /// Copies `bytes`, of which there must be room for all.
  void put(std::span<const std::byte> bytes) noexcept;
  /// Ends a message: the next one starts at a granule.
  void pad() noexcept;
  void publish() noexcept { ring_.control->written.store(written_, std::memory_order_release); }
  RingState state() const noexcept { return state_; }

 private:
  Ring ring_;
  std::uint64_t written_ = 0;
  std::uint64_t limit_ = kRingBytes;  ///< Bytes up to here were free at the last look. A multiple of the
                                      ///< granule: padding always fits.
  HandOver hand_over_;
  RingState state_ = RingState::open;
};

/// Not thread-safe. What was consumed is free for the writer after publish().
class RingReader {
 public:
  explicit RingReader(Ring ring) noexcept : ring_(ring) {}

  /// Bytes that can be read now; looks at the writer's counter when fewer than `wanted` are known. 0 unless
  /// state() is open.
  std::size_t available(std::size_t wanted) noexcept;
  /// The next available bytes that lie together, at most `most`. Look with available() first.
  std::span<const std::byte> front(std::size_t most) const noexcept;
  void consume(std::size_t bytes) noexcept { consumed_ += bytes; }
  /// Skips to the next granule.
  void pad() noexcept;
  void publish() noexcept { ring_.control->consumed.store(consumed_, std::memory_order_release); }
  RingState state() const noexcept { return state_; }

 private:
  Ring ring_;
  std::uint64_t consumed_ = 0;
  std::uint64_t written_ = 0;
  RingState state_ = RingState::open;
};

}  // namespace lockstep::internal
