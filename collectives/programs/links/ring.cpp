#include "collectives/programs/links/ring.hpp"

#include <algorithm>

namespace lockstep::internal {

PartialSums::PartialSums(ProgramBuilder& builder, const Blocks& blocks, std::uint64_t segment)
    : segments_(segment_count(blocks.longest(), segment)),
      stride_(segment == 0 ? blocks.longest() : std::min(segment, blocks.longest())) {
  const int slots =
      std::clamp(blocks.size() - 2, 0, 2);  // the last of world - 1 steps fills the result instead
  sent_.resize(static_cast<std::size_t>(slots * segments_));
  memory_ = builder.reserve(sent_.size() * stride_);
}

Slice PartialSums::at(int step, int index, Range segment) const {
  return scratch({memory_.begin + cell(step, index) * stride_, segment.count});
}

RingReduced ring_reduce_scatter(const Shape& shape, RingLanes& lanes, const Blocks& blocks, PartialSums& sums,
                                Slice result) {
  const int right = wrap(shape.rank + 1, shape.world), left = wrap(shape.rank - 1, shape.world);
  RingReduced reduced;
  if (shape.world == 1) {
    reduced.result.assign(1, lanes.receives.copy_finished(input(blocks[0]), result));
    return reduced;
  }
  for (int step = 0; step < shape.world - 1; ++step) {
    const Range leaving = blocks[shape.rank - 1 - step], coming = blocks[shape.rank - 2 - step];
    const bool last = step == shape.world - 2;

    SegmentTickets sent;
    for (int s = 0; s < segment_count(leaving.count, shape.segment); ++s) {
      const Range segment = segment_of(leaving, shape.segment, s);
      if (step == 0) {
        sent.push_back(lanes.sends.send(right, input(segment)));
        continue;
      }
      const After arrived = reduced.result[static_cast<std::size_t>(s)];
      sent.push_back(lanes.sends.send(right, sums.at(step - 1, s, segment), {arrived}));
      sums.sent(step - 1, s, sent.back());
    }
    reduced.sent.push_back(std::move(sent));

    SegmentTickets arrived;
    for (int s = 0; s < segment_count(coming.count, shape.segment); ++s) {
      const Range segment = segment_of(coming, shape.segment, s);
      const Slice destination =
          last ? part_of_slice(result, coming.begin, segment) : sums.at(step, s, segment);
      const After free = last ? After{} : sums.free_after(step, s);
      const Combine how{.received_first = true, .finish = last};
      arrived.push_back(lanes.receives.recv_reduce(left, input(segment), destination, how, {free}));
    }
    reduced.result = std::move(arrived);
  }
  return reduced;
}

void ring_all_gather(const Shape& shape, RingLanes& lanes, const Blocks& blocks, Slice own,
                     SegmentTickets ready) {
  const int right = wrap(shape.rank + 1, shape.world), left = wrap(shape.rank - 1, shape.world);
  for (int step = 0; step < shape.world - 1; ++step) {
    const Range leaving = blocks[shape.rank - step], coming = blocks[shape.rank - 1 - step];

    for (int s = 0; s < segment_count(leaving.count, shape.segment); ++s) {
      const Range segment = segment_of(leaving, shape.segment, s);
      const Slice source = step == 0 ? part_of_slice(own, leaving.begin, segment) : output(segment);
      lanes.sends.send(right, source, {ready.empty() ? After{} : ready[static_cast<std::size_t>(s)]});
    }

    ready.clear();
    for (int s = 0; s < segment_count(coming.count, shape.segment); ++s) {
      ready.push_back(lanes.receives.recv(left, output(segment_of(coming, shape.segment, s))));
    }
  }
}

}  // namespace lockstep::internal
