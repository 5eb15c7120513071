// Everything but all_reduce, registered: who reads a member's input or writes its output does it where it
// lies. Broadcast, scatter and all_to_all "direct" are pulled, too, and so may do nothing but copy from
// inputs.
//
// "direct":
//
// - broadcast, scatter: the others read the root's input, all at once.
// - gather: the others write the root's output, all at once.
// - all_gather: each rank loads its block once and stores it to all outputs.
// - all_to_all: each rank reads its blocks of all inputs.
// - reduce: each rank reduces one part of all inputs into the root's output.
// - reduce_scatter: each rank reduces its block of all inputs into its output.
//
// "shared", broadcast: the root has a part of the work. It writes a part of every output, one of as many as
// there are ranks, and the others read the rest: two ranks copy a half each.
//
// scatter_v, gather_v and all_to_all_v are absent: where a block lies in a member's buffer is known to that
// member alone.
//
// Synchronisations: 2.
// Bytes touched: one load and one store for each byte that moves.
// Bits: rank order, one rounding.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/domain.hpp"

namespace lockstep::internal {

Program reduce_registered(const Shape& shape) {
  return program_on_buffers(kEverybody, [&](LaneBuilder& lane) {
    const Range part = aligned_parts(shape.count, shape.world)[shape.rank];
    const Slice result = Members(shape).output_of(shape.root, part);
    lane.reduce(Members(shape).all_inputs(part), {&result, 1}, true);
  });
}

Program reduce_scatter_registered(const Shape& shape) {
  return program_on_buffers(kEverybody, [&](LaneBuilder& lane) {
    const Range block = Blocks::of(shape)[shape.rank];
    const Slice result = output({0, block.count});
    lane.reduce(Members(shape).all_inputs(block), {&result, 1}, true);
  });
}

Program broadcast_registered(const Shape& shape) {
  return program_on_buffers(everybody_at_root(shape), [&](LaneBuilder& lane) {
    const Range whole{0, shape.count};
    if (shape.rank != shape.root) lane.copy(Members(shape).input_of(shape.root, whole), output(whole));
  });
}

Program broadcast_shared(const Shape& shape) {
  const Members members(shape);
  const Range written = aligned_parts(shape.count, shape.world)[shape.world - 1];
  const Range rest{0, written.begin};
  if (shape.rank != shape.root) {
    const auto read = [&](LaneBuilder& lane) { lane.copy(members.input_of(shape.root, rest), output(rest)); };
    return program_on_buffers(shape.root, read);
  }
  return program_on_buffers(kEverybody, [&](LaneBuilder& lane) {
    std::vector<Slice> others = members.all_outputs(written);
    others.erase(others.begin() + shape.root);
    const Slice own = input(written);
    if (!others.empty()) lane.reduce({&own, 1}, others, false);
  });
}

Program scatter_registered(const Shape& shape) {
  return program_on_buffers(everybody_at_root(shape), [&](LaneBuilder& lane) {
    const Range block = Blocks::of(shape)[shape.rank];
    lane.copy(Members(shape).input_of(shape.root, block), output({0, block.count}));
  });
}

Program gather_registered(const Shape& shape) {
  return program_on_buffers(everybody_at_root(shape), [&](LaneBuilder& lane) {
    const Range block = Blocks::of(shape)[shape.rank];
    lane.copy(input({0, block.count}), Members(shape).output_of(shape.root, block));
  });
}

Program all_gather_registered(const Shape& shape) {
  return program_on_buffers(kEverybody, [&](LaneBuilder& lane) {
    const Range block = Blocks::of(shape)[shape.rank];
    const Slice own = input({0, block.count});
    lane.reduce({&own, 1}, Members(shape).all_outputs(block), false);
  });
}

Program all_to_all_registered(const Shape& shape) {
  return program_on_buffers(kEverybody, [&](LaneBuilder& lane) {
    const Blocks blocks = Blocks::of(shape);
    const Members members(shape);
    for (int k = 1; k <= shape.world; ++k) {  // each rank begins with another one, and ends with itself
      const int from = wrap(shape.rank + k, shape.world);
      lane.copy(members.input_of(from, blocks[shape.rank]), output(blocks[from]));
    }
  });
}

}  // namespace lockstep::internal
