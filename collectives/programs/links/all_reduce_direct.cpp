// all_reduce "direct": every rank owns one part; all send it their version of the part, it reduces them in
// rank order in one pass and sends the result to all. The fewest message delays (2) at the least bytes, for
// networks that carry world - 1 messages side by side.
//
// Steps: 2.
// Messages: 2 (world - 1).
// Bytes sent: 2 (world - 1) / world of the message.
// Scratch: world - 1 segments.
// Bits: rank order, one rounding.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/pairwise.hpp"

namespace lockstep::internal {
namespace {

struct Reduced {
  After complete;           // The own segment.
  std::vector<After> sent;  // By rank: in place, the part that arrives lies where this was sent from.
};

void spread(const Shape& shape, LaneBuilder& sends, LaneBuilder& receives,
            const DirectReduceScatter& exchange, int index, const Reduced& reduced) {
  for_each_round(shape, [&](int to, int from) {
    sends.send(to, output(exchange.segment(shape.rank, index)), {reduced.complete});
    receives.recv(from, output(exchange.segment(from, index)),
                  {reduced.sent[static_cast<std::size_t>(from)]});
  });
}

}  // namespace

Program all_reduce_direct(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Blocks parts = Blocks::parts(shape.count, shape.world);
  DirectReduceScatter exchange(shape, builder, sends, receives, parts);
  std::vector<Reduced> reduced(static_cast<std::size_t>(exchange.segments()));
  // A segment is spread while the next one is reduced.
  for (int s = 0; s <= exchange.segments(); ++s) {
    const auto at = static_cast<std::size_t>(s);
    if (s < exchange.segments())
      reduced[at].complete = exchange.run(s, output(exchange.segment(shape.rank, s)), &reduced[at].sent);
    if (s > 0) spread(shape, sends, receives, exchange, s - 1, reduced[at - 1]);
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
