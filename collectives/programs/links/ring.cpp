#include "collectives/programs/links/ring.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::internal {

RingOrder::RingOrder(const Shape& shape) : ranks_(static_cast<std::size_t>(shape.world)) {
  std::iota(ranks_.begin(), ranks_.end(), 0);
  if (!shape.hosts.empty()) {
    std::stable_sort(ranks_.begin(), ranks_.end(), [&](int a, int b) {
      return shape.hosts[static_cast<std::size_t>(a)] < shape.hosts[static_cast<std::size_t>(b)];
    });
  }
  place_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), shape.rank) - ranks_.begin());
}

RingReduceScatter::RingReduceScatter(const Shape& shape, ProgramBuilder& builder, RingLanes& lanes,
                                     const Blocks& blocks)
    : shape_(shape),
      order_(shape),
      lanes_(lanes),
      blocks_(blocks),
      segments_(segment_count(blocks.longest(), shape.segment)),
      width_(static_cast<std::size_t>(std::min(segments_, kWave))),
      stride_(shape.segment == 0 ? blocks.longest() : std::min(shape.segment, blocks.longest())) {
  const int halves = std::clamp(shape.world - 2, 0, 2);  // The last of world - 1 steps finishes instead.
  for (int half = 0; half < halves; ++half) sums_[half] = reserve_wave(builder);
}

void RingReduceScatter::run(int wave, const std::function<Place(int, Range)>& place) {
  const int right = order_.right(), left = order_.left();
  if (shape_.world == 1) {
    for (int s = first(wave); s < last(wave); ++s) {
      const Range own = segment_if_any(blocks_[0], shape_.segment, s);
      arrived_[slot(s)] = lanes_.receives.copy_finished(input(own), place(s, own).slice);
    }
  }
  for (int step = 0; step < shape_.world - 1; ++step) {
    const Range leaving = blocks_[order_.place() - 1 - step], coming = blocks_[order_.place() - 2 - step];
    for (int s = first(wave); s < last(wave); ++s) {
      const Range part = segment_if_any(leaving, shape_.segment, s);
      if (step == 0) {
        left_[slot(s)] = lanes_.sends.send(right, input(part));
      } else {
        keep(sent(step - 1, s),
             lanes_.sends.send(right, in_wave(sums(step - 1), s, part), {arrived_[slot(s)]}));
      }
    }
    const bool finishes = step == shape_.world - 2;
    for (int s = first(wave); s < last(wave); ++s) {
      const Range part = segment_if_any(coming, shape_.segment, s);
      const Place to = finishes ? place(s, part) : Place{in_wave(sums(step), s, part), sent(step, s)};
      const RecvReduceFlags how{.received_first = true, .finish = finishes};
      arrived_[slot(s)] = lanes_.receives.recv_reduce(left, input(part), to.slice, how, {to.free});
    }
  }
}

void ring_all_gather(const Shape& shape, RingLanes& lanes, const Blocks& blocks, Slice own,
                     SegmentTickets ready) {
  const RingOrder order(shape);
  const int right = order.right(), left = order.left();
  for (int step = 0; step < shape.world - 1; ++step) {
    const Range leaving = blocks[order.place() - step], coming = blocks[order.place() - 1 - step];

    for (int s = 0; s < segment_count(leaving.count, shape.segment); ++s) {
      const Range segment = segment_of(leaving, shape.segment, s);
      const Slice source =
          step == 0 ? within(own, {segment.begin - leaving.begin, segment.count}) : output(segment);
      lanes.sends.send(right, source, {ready.empty() ? After{} : ready[static_cast<std::size_t>(s)]});
    }

    ready.clear();
    for (int s = 0; s < segment_count(coming.count, shape.segment); ++s) {
      ready.push_back(lanes.receives.recv(left, output(segment_of(coming, shape.segment, s))));
    }
  }
}

}  // namespace lockstep::internal
