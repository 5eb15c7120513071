// all_reduce "direct": every rank owns one part; all send it their version of the part, it reduces them in
// rank order in one pass and sends the result to all. The fewest message delays (2) at the least bytes, for
// networks that carry world - 1 messages side by side.
//
// Steps: 2.
// Messages: 2 (world - 1).
// Bytes sent: 2 (world - 1) / world of the message.
// Scratch: (world - 1) / world of the message.
// Bits: rank order, one rounding.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/pairwise.hpp"

namespace lockstep::internal {

Program all_reduce_direct(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Blocks parts = Blocks::parts(shape.count, shape.world);
  const Slice own = output(parts[shape.rank]);
  std::vector<After> sent;
  const After complete = direct_reduce_scatter(shape, builder, sends, receives, parts, own, &sent);
  for_each_round(shape, [&](int to, int from) {
    sends.send(to, own, {complete});
    // In place, the part that arrives lies where this rank's version of it was sent from.
    receives.recv(from, output(parts[from]), {sent[static_cast<std::size_t>(from)]});
  });
  return std::move(builder).build();
}

}  // namespace lockstep::internal
