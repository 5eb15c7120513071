// What the ranks of this process that set up one group have in common: a member's memory is fetched once, and
// its bell is one descriptor, however many threads are ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transports/shm/shm_group.hpp"

namespace lockstep::internal {

/// Thread-safe.
class ShmSharedSetup {
 public:
  /// The one of group `id`; null when that id is taken by a group of another size. It ends with its last
  /// holder: hold it as long as set-up lasts, and no longer.
  static std::shared_ptr<ShmSharedSetup> of(std::uint64_t id, std::size_t size);
  explicit ShmSharedSetup(std::size_t size) : slots_(size) {}

  /// Makes the attachment of `member` known to this process's other ranks.
  void enter(int member, const Attachment& attachment);

  /// Whether the caller is the one to fetch `member`'s memory, because nobody has or is about to. It then
  /// calls enter(), or give_up() for others to try.
  bool claim(int member);
  void give_up(int member);

  /// The attachment of `member` as soon as it is known; nothing when that takes longer than `patience`.
  std::optional<Attachment> await(int member, std::chrono::milliseconds patience);

 private:
  struct Slot {
    std::optional<Attachment> attachment;
    bool claimed = false;
    std::condition_variable known;  ///< One each, so that only those are woken who wait for this member.
  };
  Slot& slot(int member) { return slots_[static_cast<std::size_t>(member)]; }

  std::mutex mutex_;
  std::vector<Slot> slots_;
};

}  // namespace lockstep::internal
