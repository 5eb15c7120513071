#include "collectives/programs/program_builder.hpp"

#include <cassert>

namespace lockstep::internal {

LaneBuilder ProgramBuilder::lane() {
  program_.lanes.emplace_back();
  waited_.emplace_back();
  return LaneBuilder(*this, static_cast<std::uint32_t>(program_.lanes.size() - 1));
}

Range ProgramBuilder::reserve(std::uint64_t count) {
  const Range range{program_.scratch, count};
  program_.scratch += count;
  return range;
}

After LaneBuilder::append(Step step, Tickets after) {
  std::size_t kept = 0;
  auto& waited = builder_->waited_[lane_];
  waited.resize(builder_->program_.lanes.size());
  for (const After& ticket : after) {
    if (ticket.steps <= waited[ticket.lane]) continue;
    waited[ticket.lane] = ticket.steps;
    assert(kept < std::size(step.after));
    step.after[kept++] = ticket;
  }
  auto& steps = builder_->program_.lanes[lane_].steps;
  steps.push_back(step);
  return {lane_, static_cast<std::uint32_t>(steps.size())};
}

After LaneBuilder::send(int peer, Slice source, Tickets after) {
  if (drops(source.count)) return {};
  Step step;
  step.kind = StepKind::send;
  step.peer = peer;
  step.src = source;
  return append(step, after);
}

After LaneBuilder::recv(int peer, Slice destination, Tickets after) {
  if (drops(destination.count)) return {};
  Step step;
  step.kind = StepKind::recv;
  step.peer = peer;
  step.dst = destination;
  return append(step, after);
}

After LaneBuilder::recv_reduce(int peer, Slice own, Slice destination, RecvReduceFlags how, Tickets after) {
  assert(own.count == destination.count);
  if (drops(own.count)) return {};
  Step step;
  step.kind = StepKind::recv_reduce;
  step.peer = peer;
  step.received_first = how.received_first;
  step.finish = how.finish;
  step.src = own;
  step.dst = destination;
  return append(step, after);
}

After LaneBuilder::copy(Slice source, Slice destination, Tickets after) {
  assert(source.count == destination.count);
  if (source.count == 0) return {};
  Step step;
  step.kind = StepKind::copy;
  step.src = source;
  step.dst = destination;
  return append(step, after);
}

After LaneBuilder::copy_finished(Slice source, Slice destination) {
  const After ticket = copy(source, destination);
  if (ticket.steps != 0) builder_->program_.lanes[lane_].steps.back().finish = true;
  return ticket;
}

After LaneBuilder::reduce(std::span<const Slice> operands, std::span<const Slice> destinations, bool finish,
                          Tickets after) {
  assert(!operands.empty() && !destinations.empty());
  if (operands[0].count == 0) return {};
  auto& slices = builder_->program_.slices;
  Step step;
  step.kind = StepKind::reduce;
  step.finish = finish;
  step.operands = static_cast<std::uint32_t>(slices.size());
  step.operand_count = static_cast<std::uint32_t>(operands.size());
  slices.insert(slices.end(), operands.begin(), operands.end());
  step.destinations = static_cast<std::uint32_t>(slices.size());
  step.destination_count = static_cast<std::uint32_t>(destinations.size());
  slices.insert(slices.end(), destinations.begin(), destinations.end());
  return append(step, after);
}

After LaneBuilder::signal(int peer, Tickets after) {
  Step step;
  step.kind = StepKind::send;
  step.peer = peer;
  return append(step, after);
}

After LaneBuilder::expect(int peer, Tickets after) {
  Step step;
  step.kind = StepKind::recv;
  step.peer = peer;
  return append(step, after);
}

void LaneBuilder::publish() {
  Step step;
  step.kind = StepKind::publish;
  step.phase = ++builder_->program_.phases;
  append(step, {});
}

void LaneBuilder::await(int member, std::uint32_t phase) {
  Step step;
  step.kind = StepKind::await;
  step.peer = member;
  step.phase = phase;
  append(step, {});
}

}  // namespace lockstep::internal
