// gather, all_gather and all_gather_v "direct", pulled: who wants a member's block reads it where it lies.
// They differ from the registered programs, in which who has a block writes it, in that reading needs no
// mapping: the kernel does it (CMA).
//
// Synchronisations: 2.
// Bytes touched: one load and one store for each byte that moves.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/domain.hpp"

namespace lockstep::internal {
namespace {

/// Each rank begins with another one, and ends with itself.
void read_all_blocks(LaneBuilder& lane, const Shape& shape) {
  const Blocks blocks = Blocks::of(shape);
  for (int k = 1; k <= shape.world; ++k) {
    const int from = wrap(shape.rank + k, shape.world);
    lane.copy(Members(shape).input_of(from, {0, blocks[from].count}), output(blocks[from]));
  }
}

}  // namespace

Program gather_pulled(const Shape& shape) {
  const bool is_root = shape.rank == shape.root;
  return program_on_buffers(is_root ? kNobody : shape.root, [&](LaneBuilder& lane) {
    if (is_root) read_all_blocks(lane, shape);
  });
}

Program all_gather_pulled(const Shape& shape) {
  return program_on_buffers(kEverybody, [&](LaneBuilder& lane) { read_all_blocks(lane, shape); });
}

}  // namespace lockstep::internal
