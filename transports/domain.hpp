// Domain: ranks that can address each other's memory. The transport provides the memory; the engine gives it
// its meaning.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/memory/segment.hpp"
#include "transports/doorbell.hpp"
#include "transports/frame.hpp"

namespace lockstep::internal {

inline constexpr std::size_t kLine = 128;  ///< Two cache lines: the adjacent-line prefetcher pairs them.
inline constexpr std::size_t kInlinePayload = 40;  ///< Payload bytes that ride in a flag's cache line.
/// Further lines with a flag each, for payloads that are longer. From 1 KiB on copies and one flag take as
/// long, between two members from less (kInlinePayloadOfTwo).
inline constexpr std::size_t kInlineTails = 9, kTailPayload = 56;
inline constexpr std::size_t kLongInlinePayload = kInlinePayload + kInlineTails * kTailPayload;
inline constexpr std::size_t kRecentCalls = 64;  ///< How many calls back a mismatch can be explained.
/// Staging area per member of host memory: two halves used alternately by consecutive calls. Larger than a
/// core's own cache: see staging_window.
inline constexpr std::size_t kStagingBytes = 2 << 20;

/// A flag with room for a small payload beside it in one cache line. Single writer: the owner.
struct alignas(kLine) InlineLine {
  std::atomic<std::uint64_t> flag;
  std::uint64_t fingerprint;  ///< Of the call: the reader compares it before it uses the payload.
  std::byte payload[kInlinePayload];
};

/// What a line holds that continues an InlineLine.
struct alignas(64) InlineTail {
  std::atomic<std::uint64_t> flag;
  std::byte payload[kTailPayload];
};
static_assert(sizeof(InlineTail) == 64);

/// What a member says about its buffers when a call could use them where they lie. Written before `call` is
/// raised. In place the first cache line says it all.
struct alignas(kLine) Offer {
  std::atomic<std::uint64_t> call;  ///< Number of the domain call it belongs to, from 1.
  std::uint64_t fingerprint;        ///< Of that call.
  SegmentRef input;
  std::uint64_t in_place;  ///< Not 0: the output is the input.
  std::uint32_t pulls;     ///< Not 0: its owner would pull, and can; members can pull its input.
  std::uint32_t took;      ///< Nanoseconds of an earlier call, for all to see; 0: none.
  SegmentRef output;       ///< Unless in place.
};
static_assert(offsetof(Offer, output) <= 64);

/// One call as its caller made it: lets a peer find and explain a mismatch. Its owner may overwrite it while
/// a peer reads, so the reader looks twice at whose facts these are, and all words are atomic: who reads one
/// of a later call sees that `sequence` has changed.
struct CallRecord {
  static constexpr std::size_t kWords = sizeof(CallFacts) / sizeof(std::uint64_t);
  std::atomic<std::uint64_t> sequence;  ///< sequence + 1; 0: being written.
  std::atomic<std::uint64_t> words[kWords];

  void write(std::uint64_t of, const CallFacts& facts) {
    const auto from = std::bit_cast<std::array<std::uint64_t, kWords>>(facts);
    sequence.store(0, std::memory_order_relaxed);
    for (std::size_t i = 0; i < kWords; ++i) words[i].store(from[i], std::memory_order_release);
    sequence.store(of + 1, std::memory_order_release);
  }
  /// What its owner then stores beside it, and releases, is of the call that it writes next.
  void clear() { sequence.store(0, std::memory_order_relaxed); }
  /// Its owner has gone on to calls that take this place.
  bool is_past(std::uint64_t of) const { return sequence.load(std::memory_order_relaxed) > of + 1; }
  /// Its owner has written that call, or a later one of this place.
  bool has_come_to(std::uint64_t of) const { return sequence.load(std::memory_order_acquire) >= of + 1; }
  /// Nothing when it is of another call.
  std::optional<CallFacts> read(std::uint64_t of) const {
    if (sequence.load(std::memory_order_acquire) != of + 1) return std::nullopt;
    std::array<std::uint64_t, kWords> to;
    for (std::size_t i = 0; i < kWords; ++i) to[i] = words[i].load(std::memory_order_acquire);
    if (sequence.load(std::memory_order_relaxed) != of + 1) return std::nullopt;
    return std::bit_cast<CallFacts>(to);
  }
  /// What lies beside it; nothing when that is of another call.
  std::optional<std::uint64_t> read_beside(std::uint64_t of, const std::atomic<std::uint64_t>& word) const {
    if (sequence.load(std::memory_order_acquire) != of + 1) return std::nullopt;
    const std::uint64_t value = word.load(std::memory_order_acquire);
    if (sequence.load(std::memory_order_relaxed) != of + 1) return std::nullopt;
    return value;
  }
};

/// A member's control area. Written by its owner only, except `doorbell`, `revoked` and `reason`, which peers
/// write too. All-zero is the initial state.
struct MemberControl {
  alignas(kLine) std::atomic<std::uint64_t> phase;  ///< Monotonic progress flag of domain programs.
  /// Of the last domain calls, by call modulo 4; in the phase's line.
  std::atomic<std::uint64_t> fingerprints[4];
  alignas(kLine) InlineLine inline_line[2];  ///< One-shot payloads, used alternately.
  alignas(kLine) InlineTail inline_tails[2][kInlineTails];
  Offer offer[2];  ///< By parity of the domain call.
  /// The owner's process_token_address(): who pulls reads there whose memory it is. And a thread of it that
  /// lives as long as it does, by which the kernel finds that memory: it finds none by the number of a
  /// process whose first thread has ended. Set before the group is complete.
  alignas(kLine) std::uint64_t token_address;
  std::int64_t lasting_thread;
  /// The processor that the owner was seen on, from 1. In a line of its own: it seldom changes.
  alignas(kLine) std::atomic<std::uint32_t> processor;
  alignas(kLine) Doorbell doorbell;  ///< Rung by peers when they publish and the owner sleeps.
  /// Not 0: the communicator is dead; the first writer fills reason.
  alignas(kLine) std::atomic<std::uint32_t> revoked;
  /// The owner may be reading or writing members' memory where it lies. It sets this, looks at its `revoked`,
  /// uses the memory, takes this back, and looks again (all seq_cst).
  std::atomic<std::uint32_t> in_use;
  std::atomic<std::uint64_t> left;  ///< The owner left in good order after this many calls + 1.
  alignas(kLine) CallRecord recent[kRecentCalls];  ///< By sequence modulo kRecentCalls.
  /// Beside each of them a hash of the calls before it, where members compare these as well.
  std::atomic<std::uint64_t> before[kRecentCalls];
  /// Of calls that the owner's device runs in its streams, the sequence + 1 of the last that it has enqueued
  /// as a whole, that a stream has come to, whose part between hosts the owner has done, and that a stream
  /// has passed.
  std::atomic<std::uint64_t> enqueued, reached, carried, passed;
  /// When its thread last looked after such a call, by the clock of the host.
  std::atomic<std::int64_t> looked_at;
  /// The rank + 1, among those of all hosts, that it waits for in the next part; 0: for nobody.
  std::atomic<std::uint32_t> awaited;
  char reason[kMaxReasonBytes];  ///< Valid when revoked == 2.
};

class Domain {
 public:
  virtual ~Domain() = default;
  // The first three are called several times in every operation, so they are not virtual.
  int rank() const { return rank_; }
  int size() const { return size_; }
  MemberControl& control(int member) { return *controls_[static_cast<std::size_t>(member)]; }
  /// Of each member's staging area; equal on all.
  std::size_t staging_bytes() const { return staging_bytes_; }
  /// `member`'s staging memory in this rank's address space. Populated.
  virtual std::byte* staging(int member) = 0;
  /// Before the resolve() calls of an operation: what was resolved for those before it may make room.
  virtual void begin_resolving() {}
  /// This rank's address of `bytes` of `member`'s memory at `ref`; maps the segment on first use. May block
  /// for a moment; ErrorCode::timeout when that was too short, because the member is slow or stopped: to be
  /// asked again. The pointer stays valid until another operation's memory is resolved, or a number of other
  /// segments of the member that no operation reaches (kMaxMappedSegments in shm).
  virtual Result<std::byte*> resolve(int member, const SegmentRef& ref, std::size_t bytes) = 0;
  /// Whether this rank may read memory of every member that no segment holds, as the kernel lets related
  /// processes do (CMA). Probed at the first question; the answer stays.
  virtual bool can_pull() { return false; }
  /// Whether members could read this rank's private memory there: the kernel does not read all that is mapped
  /// for others (not what lies in a device). Only where can_pull().
  virtual bool is_readable(const void* address) { return address != nullptr; }
  /// Copies `bytes` at `address` of `member`'s process to `to`; peer_lost when that is gone, whoever has its
  /// pid by now. Only where can_pull().
  virtual Status pull(int member, std::uint64_t address, void* to, std::size_t bytes) {
    static_cast<void>(address), static_cast<void>(to), static_cast<void>(bytes);
    return Status(ErrorCode::not_supported, "this domain cannot read plain memory of its members", member);
  }
  /// Tells every member that sleeps to look. Call after a seq_cst store of the change: the load here may then
  /// not come first.
  void ring_sleepers() {
    for (int member = 0; member < size(); ++member) {
      if (member != rank_ && control(member).doorbell.asleep.load(std::memory_order_seq_cst) != 0)
        ring(member);
    }
  }
  /// Ring `member`'s doorbell if it declared itself asleep.
  virtual void ring(int member) = 0;
  /// An eventfd of this rank that becomes readable when it is rung while it sleeps in poll (Doorbell::asleep
  /// == 2).
  virtual int bell_fd() = 0;

 protected:
  /// `controls` by member; they outlive the domain.
  Domain(int rank, std::vector<MemberControl*> controls, std::size_t staging_bytes = kStagingBytes)
      : rank_(rank),
        size_(static_cast<int>(controls.size())),
        staging_bytes_(staging_bytes),
        controls_(std::move(controls)) {}

 private:
  const int rank_, size_;
  const std::size_t staging_bytes_;
  const std::vector<MemberControl*> controls_;
};

}  // namespace lockstep::internal
