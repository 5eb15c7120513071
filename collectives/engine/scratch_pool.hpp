// Memory that running operations need beside the callers' buffers.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "collectives/engine/limits.hpp"
#include "lib/base/aligned_bytes.hpp"

namespace lockstep::internal {

struct Scratch {
  AlignedBytes memory;
  std::size_t bytes = 0;
};

/// Keeps for the next operations the largest pieces that kKeptScratchBytes allows: those cost most to map
/// again. Not thread-safe (the engine's lock guards it).
class ScratchPool {
 public:
  /// Gives `scratch` at least so many bytes, contents undefined.
  void take(Scratch& scratch, std::size_t bytes) {
    if (scratch.bytes >= bytes) return;
    const auto piece = std::find_if(kept_.begin(), kept_.end(),
                                    [bytes](const Scratch& each) { return each.bytes >= bytes; });
    if (piece == kept_.end()) {
      scratch = {make_aligned(bytes), bytes};
      return;
    }
    scratch = std::exchange(*piece, {});
    kept_bytes_ -= scratch.bytes;
    std::rotate(kept_.begin(), piece, piece + 1);
  }

  /// `scratch` keeps what is small, so that short calls come for none.
  void give_back(Scratch& scratch) noexcept {
    if (scratch.bytes <= kScratchOfOperation) return;
    Scratch piece = std::exchange(scratch, {});
    if (piece.bytes <= kept_.front().bytes || piece.bytes > kKeptScratchBytes) return;
    kept_bytes_ += piece.bytes - kept_.front().bytes;
    // In front of its equals, so that of those the oldest stay: what is freed lies behind them in the heap.
    const auto place = std::find_if(kept_.begin() + 1, kept_.end(),
                                    [&](const Scratch& each) { return each.bytes >= piece.bytes; });
    kept_.front() = std::move(piece);
    std::rotate(kept_.begin(), kept_.begin() + 1, place);
    for (auto least = kept_.begin(); kept_bytes_ > kKeptScratchBytes; ++least)
      kept_bytes_ -= std::exchange(*least, {}).bytes;
  }

 private:
  std::array<Scratch, 8> kept_;  // From the smallest, empty places first.
  std::size_t kept_bytes_ = 0;
};

}  // namespace lockstep::internal
