// all_to_all and all_to_all_v "direct": block p goes straight to rank p, one partner a round.
//
// Steps: world - 1, side by side. all_to_all_v sends empty messages too: each side knows a count only from
// its own caller, and a difference must be found.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/pairwise.hpp"

namespace lockstep::internal {

Program all_to_all_direct(const Shape& shape) {
  const bool own_counts = shape.collective == Collective::all_to_all_v;
  ProgramBuilder builder(own_counts ? EmptyMessages::sent : EmptyMessages::dropped);
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Blocks leaving = Blocks::of(shape);
  const Blocks coming = own_counts ? Blocks(shape.recv_counts) : leaving;
  for_each_round(shape, [&](int to, int from) {
    sends.send(to, input(leaving[to]));
    receives.recv(from, output(coming[from]));
  });
  builder.lane().copy(input(leaving[shape.rank]), output(coming[shape.rank]));
  return std::move(builder).build();
}

}  // namespace lockstep::internal
