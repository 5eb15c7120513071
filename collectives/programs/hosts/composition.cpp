#include "collectives/programs/hosts/composition.hpp"

#include <algorithm>

#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

/// What becomes of a part's slices and steps in the whole.
struct Composition::Home {
  const Part& part;
  const Slice scratch;
  const std::span<const std::size_t> lanes;
  const std::uint32_t first_slice;
  std::vector<std::uint32_t> first_step;  ///< In each lane.

  Slice placed(Slice slice) const {
    const Slice& home = slice.space == Space::input    ? part.input
                        : slice.space == Space::output ? part.output
                                                       : scratch;
    return Slice{home.space, kSelf, home.offset + slice.offset, slice.count};
  }
  Step placed(Step step) const {
    if (step.peer != kSelf) step.peer = part.ranks[static_cast<std::size_t>(step.peer)];
    step.finish &= part.finishes;
    step.src = placed(step.src);
    step.dst = placed(step.dst);
    step.operands += first_slice;
    step.destinations += first_slice;
    for (After& ticket : step.after) {
      if (ticket.steps == 0) continue;
      ticket.steps += first_step[ticket.lane];
      ticket.lane = static_cast<std::uint32_t>(lanes[ticket.lane]);
    }
    return step;
  }
};

Composition::Track Composition::track() {
  tracks_.emplace_back();
  return tracks_.size() - 1;
}

Slice Composition::reserve(std::uint64_t count) {
  const Slice slice = scratch({program_.scratch, count});
  program_.scratch += count;
  return slice;
}

/// Steps that move nothing, two tickets each.
void Composition::join(std::size_t lane, const Completion& after) {
  joined_.resize(program_.lanes.size());
  auto& joined = joined_[lane];
  joined.resize(program_.lanes.size());
  std::vector<After> open;
  for (const After& ticket : after) {
    if (ticket.lane == lane || ticket.steps <= joined[ticket.lane]) continue;
    joined[ticket.lane] = ticket.steps;
    open.push_back(ticket);
  }
  for (std::size_t i = 0; i < open.size(); i += 2) {
    Step step;
    step.src = step.dst = scratch({0, 0});
    step.after[0] = open[i];
    if (i + 1 < open.size()) step.after[1] = open[i + 1];
    program_.lanes[lane].steps.push_back(step);
  }
}

/// The first so many lanes of a track, in the whole.
std::span<const std::size_t> Composition::lanes_of(Track track, std::size_t count) {
  auto& lanes = tracks_[track];
  while (lanes.size() < count) {
    lanes.push_back(program_.lanes.size());
    program_.lanes.emplace_back();
  }
  return std::span(lanes).first(count);
}

Completion Composition::add(Track track, const Part& part, const Completion& after) {
  const auto lanes = lanes_of(track, part.program.lanes.size());
  Home home{
      part, reserve(part.program.scratch), lanes, static_cast<std::uint32_t>(program_.slices.size()), {}};
  for (const Slice& slice : part.program.slices) program_.slices.push_back(home.placed(slice));
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (!part.program.lanes[i].steps.empty()) join(lanes[i], after);
    home.first_step.push_back(static_cast<std::uint32_t>(program_.lanes[lanes[i]].steps.size()));
  }
  Completion complete;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    auto& steps = program_.lanes[lanes[i]].steps;
    for (const Step& step : part.program.lanes[i].steps) steps.push_back(home.placed(step));
    if (!part.program.lanes[i].steps.empty())
      complete.push_back({static_cast<std::uint32_t>(lanes[i]), static_cast<std::uint32_t>(steps.size())});
  }
  return complete.empty() ? after : complete;
}

Shape part_shape(const Shape& whole, Collective collective, std::span<const int> ranks, std::uint64_t count,
                 int root) {
  Shape shape;
  shape.collective = collective;
  shape.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), whole.rank) - ranks.begin());
  shape.world = static_cast<int>(ranks.size());
  shape.root = root;
  shape.count = count;
  shape.segment = whole.segment;
  shape.streams = whole.streams;
  return shape;
}

}  // namespace lockstep::internal
