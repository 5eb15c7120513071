// all_reduce "rabenseifner": reduce-scatter by recursive halving, then all-gather by recursive doubling.
//
// In the first phase partners at distance size/2, size/4, ..., 1 split what they share: each sends the half
// that the other keeps and adds what it receives to the half that it keeps, so that rank number i ends with
// part i of the sum. The second phase goes the same way back: partners at distance 1, 2, ..., size/2
// exchange all the parts they have. World sizes that are no power of two: see folding.hpp.
//
// Steps: 2 log2(world), + 2 with extras.
// Bytes sent: 2 (world - 1) / world of the message (+ the message with extras): the ring's bytes in fewer
// steps, for middle sizes.
// Bits: each part is summed by one rank at each level, lower ranks first, and then copied.
// R. Rabenseifner: Optimization of collective reduction operations, 2004.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/folding.hpp"

namespace lockstep::internal {
namespace {

/// What one halving step sent, which the doubling step with the same partner receives back.
struct Halving {
  int partner;
  Range sent_range;
  After sent;
};

}  // namespace

Program all_reduce_rabenseifner(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Range whole{0, shape.count};
  const Folding folding(shape);
  if (shape.world == 1) receives.copy_finished(input(whole), output(whole));
  if (folding.gives_away()) {
    folding.give_away(sends, receives, whole);
    return std::move(builder).build();
  }

  const Blocks parts = Blocks::parts(shape.count, folding.size());
  const FoldedInput start = folding.take(receives, whole);
  Space holds = start.slice.space;  // where the sums of the shared parts are
  After ready = start.ready;
  int first = 0;
  std::vector<Halving> halvings;
  for (int bit = folding.size() / 2; bit > 0; bit /= 2) {
    const int partner = folding.rank_of(folding.number() ^ bit);
    const bool upper = (folding.number() & bit) != 0;
    const Range kept = parts.joined(upper ? first + bit : first, bit),
                given = parts.joined(upper ? first : first + bit, bit);
    const Slice leaving{holds, kSelf, given.begin, given.count}, own{holds, kSelf, kept.begin, kept.count};
    halvings.push_back({partner, given, sends.send(partner, leaving, {ready})});
    ready = receives.recv_reduce(partner, own, output(kept), {.received_first = upper, .finish = bit == 1});
    holds = Space::output;
    if (upper) first += bit;
  }
  int held = 1;  // parts from `first` on
  for (auto step = halvings.rbegin(); step != halvings.rend(); ++step) {
    sends.send(step->partner, output(parts.joined(first, held)), {ready});
    ready = receives.recv(step->partner, output(step->sent_range), {step->sent});
    first &= ~held;
    held *= 2;
  }
  folding.hand_back(sends, whole, ready);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
