// A kernel that copies what a thread of this rank tells it to, until the thread sends it home. So a thread
// moves data of the device without a call to the driver, which a call of the program may keep it from.
//
// The thread writes an errand into a ring in pinned memory and raises a word. Every block sees it, copies its
// share, and raises a word of its own. Errands are numbered for ever (modulo 2^32); how many a block has done
// lies in device memory from kernel to kernel.
#pragma once

#include "lib/device/sync/copy_bytes.hpp"

namespace lockstep::internal::sync {

/// Few: they stay while the network works. Enough for what a bus carries.
inline constexpr int kCourierBlocks = 16;
inline constexpr std::uint32_t kErrands = 64;  ///< A power of two: numbers wrap.

struct Errand {
  static constexpr std::uint64_t kHome = ~std::uint64_t{0};
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;  ///< kHome: the last one of this kernel.
};

/// In pinned memory.
struct CourierDesk {
  alignas(128) std::uint32_t posted;                ///< The number after the last errand.
  alignas(128) std::uint32_t done[kCourierBlocks];  ///< The same of those that a block has done.
  alignas(128) std::uint32_t abort;
  std::uint32_t report;  ///< As Spin needs one; nobody asks.
  Errand errands[kErrands];
};

struct CourierArguments {
  CourierDesk* desk;
  std::uint32_t* done;  ///< In device memory, by block.
  int blocks;           ///< The same in all calls.
};

/// `Block` as for MessageBody.
template <class Block>
LOCKSTEP_BOTH void run_courier(const CourierArguments& call, int index, Block block) {
  CourierDesk& desk = *call.desk;
  Spin spin({&desk.abort, &desk.report});
  const std::uint64_t thread = static_cast<std::uint64_t>(index) * block.threads() + block.thread();
  const std::uint64_t threads = static_cast<std::uint64_t>(call.blocks) * block.threads();
  std::uint32_t next = call.done[index];
  for (bool home = false; !home;) {
    // After an abort nothing more is copied, by a later kernel neither.
    const auto is_posted = [&] {
      return static_cast<std::int32_t>(load_word(&desk.posted) - next) > 0 && load_word(&desk.abort) == 0;
    };
    if (!block.any(block.first() && spin.until(0, is_posted))) break;
    const Errand errand = desk.errands[next % kErrands];
    home = errand.bytes == Errand::kHome;
    if (!home) copy_bytes(errand.to, errand.from, errand.bytes, thread, threads);
    block.sync();
    ++next;
    if (block.first()) store_word(&desk.done[index], next);
  }
  if (block.first()) call.done[index] = next;
}

}  // namespace lockstep::internal::sync
