// all_reduce "recursive_doubling": in round k every rank exchanges its whole sum with the rank whose number
// differs in bit k, and both add the two. After log2(world) rounds everybody has everything. The lowest
// latency for small messages.
//
// World sizes that are no power of two: the first 2 * extra ranks pair up; the odd one of a pair gives its
// data to the even one, which takes part for both and hands back the result.
//
// Steps: log2(world), + 2 with extras.
// Bytes sent: the message, each step.
// Bits: both partners add the lower ranks' sum first, so all evaluate one expression tree.
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH, 2005.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/folding.hpp"

namespace lockstep::internal {

Program all_reduce_recursive_doubling(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Range whole{0, shape.count};
  const Folding folding(shape);
  if (shape.world == 1) receives.copy_finished(input(whole), output(whole));
  if (folding.gives_away()) {
    folding.give_away(sends, receives, whole);
    return std::move(builder).build();
  }

  const FoldedInput start = folding.take(receives, whole);
  Slice sum = start.slice;
  After ready = start.ready;
  // The partner's sum arrives beside the own one, which is being sent at the same time.
  const Slice theirs = scratch(builder.reserve(folding.size() > 1 ? shape.count : 0));
  for (int bit = 1; bit < folding.size(); bit *= 2) {
    const int partner = folding.rank_of(folding.number() ^ bit);
    const After sent = sends.send(partner, sum, {ready});
    receives.recv(partner, theirs);
    const bool partner_is_lower = (folding.number() & bit) != 0;
    const Slice operands[2] = {partner_is_lower ? theirs : sum, partner_is_lower ? sum : theirs};
    const Slice total = output(whole);
    const bool last = bit * 2 == folding.size();
    ready = receives.reduce(operands, {&total, 1}, last, {sent});
    sum = total;
  }
  folding.hand_back(sends, whole, ready);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
