// all_gather and all_gather_v "direct": every rank sends its block to every other.
//
// Steps: 1.
// Messages: world - 1.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/pairwise.hpp"

namespace lockstep::internal {

Program all_gather_direct(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Blocks blocks = Blocks::of(shape);
  const Slice own = input({0, blocks[shape.rank].count});
  for_each_round(shape, [&](int to, int from) {
    sends.send(to, own);
    receives.recv(from, output(blocks[from]));
  });
  builder.lane().copy(own, output(blocks[shape.rank]));
  return std::move(builder).build();
}

}  // namespace lockstep::internal
