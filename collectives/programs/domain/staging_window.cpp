#include "collectives/programs/domain/staging_window.hpp"

#include <algorithm>

#include "collectives/programs/domain/staged.hpp"

namespace lockstep::internal {
namespace {

/// Smaller calls lie where the last one but one lay: so few lines cost less than another page. Two ranks use
/// fewer pages.
constexpr std::size_t least_moving_bytes(int world) { return world == 2 ? 256 : 2 << 10; }

bool has_piece_for_each(Collective collective) {
  return collective == Collective::scatter || collective == Collective::reduce_scatter ||
         collective == Collective::all_to_all;
}

/// For a slot for each block. Parts and slots begin on cache lines, and may be a line longer than others.
std::uint64_t needed(const Shape& shape) {
  const auto world = static_cast<std::uint64_t>(shape.world);
  const std::uint64_t in_parts = shape.count + 2 * world * kAlignment;
  if (shape.collective == Collective::all_reduce) return in_parts;
  const int blocks = segment_count(shape.count, StagedBlocks::longest_block(shape));
  const std::uint64_t piece = shape.count + static_cast<std::uint64_t>(blocks) * kAlignment;
  return std::max(piece * (has_piece_for_each(shape.collective) ? world : 1), in_parts);
}

}  // namespace

std::uint64_t staging_window(const Shape& shape, std::size_t element, std::size_t area) {
  const std::uint64_t half = area / 2 / element;
  // Of other ranks' counts a rank may know nothing, and who cuts no segments wants all there is.
  if (has_counts(shape.collective) || shape.segment == 0) return half;
  const std::uint64_t least = std::max<std::uint64_t>(1, least_moving_bytes(shape.world) / element);
  if (shape.count < least || shape.count > std::min(half, longest_two_shot_block(shape))) return half;
  const std::uint64_t window = needed(shape);
  return std::min(half, window + (kAlignment - window % kAlignment) % kAlignment);
}

}  // namespace lockstep::internal
