// all_to_all "bruck": blocks are passed on. A block that must go `distance` places to the right travels in
// the rounds whose bit is set in `distance`: in round k all blocks with bit k set go 2^k places right
// together, in one message.
//
// A message must be one piece, so its blocks are packed first, from wherever they arrived last; those that
// arrive stay packed until their next round or the end. Works for any world size.
//
// Steps: ceil(log2(world)).
// Bytes sent: about log2(world) / 2 times the input, copied once more for packing. For short blocks on many
// ranks.
// J. Bruck et al.: Efficient algorithms for all-to-all communications in multiport message-passing systems,
// 1997.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

Program all_to_all_bruck(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Blocks blocks = Blocks::of(shape);
  // By distance still to go and gone: the block that this rank holds for that distance, and since when.
  struct Held {
    Slice block;
    After arrived;
  };
  std::vector<Held> held;
  for (int distance = 0; distance < shape.world; ++distance) {
    held.push_back({input(blocks[shape.rank + distance]), {}});
  }

  for (int bit = 1; bit < shape.world; bit *= 2) {
    std::vector<std::size_t> moving;
    for (int distance = bit; distance < shape.world; ++distance) {
      if ((distance & bit) != 0) moving.push_back(static_cast<std::size_t>(distance));
    }
    const std::uint64_t count = moving.size() * shape.count;
    const Range packed = builder.reserve(count), incoming = builder.reserve(count);
    const auto place = [&](Range message, std::size_t i) {
      return scratch({message.begin + i * shape.count, shape.count});
    };
    for (std::size_t i = 0; i < moving.size(); ++i) {
      sends.copy(held[moving[i]].block, place(packed, i), {held[moving[i]].arrived});
    }
    sends.send(wrap(shape.rank + bit, shape.world), scratch(packed));
    const After arrived = receives.recv(wrap(shape.rank - bit, shape.world), scratch(incoming));
    for (std::size_t i = 0; i < moving.size(); ++i) held[moving[i]] = {place(incoming, i), arrived};
  }
  for (int distance = 0; distance < shape.world; ++distance) {
    receives.copy(held[static_cast<std::size_t>(distance)].block, output(blocks[shape.rank - distance]));
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
