// How a large message is cut, so that the stages of a composed program overlap: while one piece crosses the
// network, the next is reduced on the host and the last one spread there.
#pragma once

#include <algorithm>

#include "collectives/programs/blocks.hpp"

namespace lockstep::internal {

/// A piece is several pipelined messages, so that what a stage costs beyond its bytes stays small.
inline constexpr std::uint64_t kSegmentsPerPiece = 4;
inline constexpr std::uint64_t kMaxPieces = 8;

inline Blocks pieces_of(const Shape& shape) {
  const std::uint64_t least = shape.segment * kSegmentsPerPiece;
  const std::uint64_t pieces = least == 0 ? 1 : std::clamp<std::uint64_t>(shape.count / least, 1, kMaxPieces);
  return Blocks::parts(shape.count, static_cast<int>(pieces));
}

}  // namespace lockstep::internal
