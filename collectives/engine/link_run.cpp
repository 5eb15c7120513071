#include "collectives/engine/link_run.hpp"

#include <algorithm>

#include "collectives/engine/limits.hpp"
#include "collectives/engine/local_step.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kLargestUnit = 16;  // Links lend payload in multiples of at most this.

bool is_receive(StepKind kind) { return kind == StepKind::recv || kind == StepKind::recv_reduce; }

}  // namespace

void LinkRun::begin(std::shared_ptr<const PreparedProgram> program, const Buffers& buffers,
                    const Combine& combine, const CallFacts& facts, std::uint64_t sequence) {
  program_ = std::move(program);
  buffers_ = buffers;
  combine_ = combine;
  facts_ = facts;
  sequence_ = sequence;
  lanes_.assign(program_->program.lanes.size(), LaneState{});
  passed_by_ = kSelf;
}

Result<RunProgress> LinkRun::step(PeerTable& peers, FrameHandler& handler, bool alone) {
  alone_ = alone;
  RunProgress progress;
  bool again = true;
  while (again) {  // A step that completes in one lane may free another.
    again = false;
    progress.done = true;
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      const auto& steps = program_->program.lanes[lane].steps;
      while (lanes_[lane].next < steps.size()) {
        auto attempt = run_step(lane, peers, handler);
        if (!attempt.ok()) return attempt.status();
        progress.moved |= attempt->moved || attempt->complete;
        if (!attempt->complete) break;
        lanes_[lane].advance();
        again = true;
      }
      progress.done &= lanes_[lane].next == steps.size();
    }
    if (progress.done) break;
  }
  return progress;
}

bool LinkRun::ready(const Step& step) const {
  return std::all_of(std::begin(step.after), std::end(step.after),
                     [&](const After& after) { return lanes_[after.lane].next >= after.steps; });
}

Result<LinkRun::Attempt> LinkRun::run_step(std::size_t lane, PeerTable& peers, FrameHandler& handler) {
  const Step& step = program_->program.lanes[lane].steps[lanes_[lane].next];
  if (!ready(step)) return Attempt{};
  if (step.kind == StepKind::send) return run_send(lane, step, peers);
  if (is_receive(step.kind)) return run_receive(lane, step, peers, handler);
  run_local(step);
  return Attempt{.moved = true, .complete = true};
}

FrameHeader LinkRun::header_of(std::size_t lane, const Slice& payload) const {
  FrameHeader header;
  header.kind = FrameKind::data;
  header.sequence = sequence_;
  header.index = program_->notes[lane][lanes_[lane].next].message_index;
  header.bytes = buffers_.bytes(payload);
  header.facts = facts_;
  return header;
}

Awaited LinkRun::awaited_of(std::size_t lane, const Step& step) const {
  Awaited awaited{header_of(lane, step.dst), {}};
  if (step.kind == StepKind::recv) awaited.place = {buffers_.write(step.dst), buffers_.bytes(step.dst)};
  awaited.room_before = step.dst.space == Space::scratch && step.dst.offset == 0;
  return awaited;
}

Result<LinkRun::Attempt> LinkRun::run_send(std::size_t lane, const Step& step, PeerTable& peers) {
  if (!peers.may_send(step.peer, sequence_)) return Attempt{};
  auto link = peers.link(step.peer);
  if (!link.ok()) return link.status();
  if (*link == nullptr) return Attempt{};
  LaneState& state = lanes_[lane];
  const std::size_t before = state.cursor.header_bytes + state.cursor.payload_bytes;
  auto sent = (*link)->send(header_of(lane, step.src), {buffers_.read(step.src), buffers_.bytes(step.src)},
                            state.cursor);
  if (!sent.ok()) return sent.status();
  const bool begun = state.cursor.header_bytes > 0;
  peers.set_mid_message(step.peer, begun && !*sent);
  if (*sent && program_->notes[lane][state.next].last_send) peers.leave(step.peer, sequence_);
  return Attempt{.moved = *sent || state.cursor.header_bytes + state.cursor.payload_bytes > before,
                 .complete = *sent};
}

Result<LinkRun::Attempt> LinkRun::run_receive(std::size_t lane, const Step& step, PeerTable& peers,
                                              FrameHandler& handler) {
  auto link = peers.link(step.peer);
  if (!link.ok()) return link.status();
  if (*link == nullptr) return Attempt{};
  LaneState& state = lanes_[lane];
  Attempt attempt;
  if (!state.matched) {
    auto matched = match(lane, step, peers.channel(), **link, handler);
    if (!matched.ok()) return matched.status();
    if (!*matched) return attempt;
    state.matched = attempt.moved = true;
  }
  auto moved = drain_payload(state, step, **link);
  if (!moved.ok()) return moved.status();
  attempt.moved |= *moved;
  if (state.received == buffers_.bytes(step.dst)) {
    (*link)->pop();
    attempt.complete = true;
  }
  return attempt;
}

Result<bool> LinkRun::match(std::size_t lane, const Step& step, Channel channel, Link& link,
                            FrameHandler& handler) {
  const Awaited awaited = awaited_of(lane, step);
  while (true) {
    auto head = link.peek(alone_ ? &awaited : nullptr);
    if (!head.ok()) return head.status();
    const FrameHeader* header = *head;
    if (header == nullptr) return false;
    const bool data =
        header->kind == FrameKind::data && header->sequence == sequence_ && header->facts == facts_;
    if (data) {
      if (header->index == program_->notes[lane][lanes_[lane].next].message_index &&
          header->bytes == buffers_.bytes(step.dst)) {
        return true;
      }
      return handler.wrong_size(step.peer, *header, buffers_.bytes(step.dst));
    }
    auto consumed = handler.on_frame(step.peer, channel, *header, link);
    if (!consumed.ok()) return consumed.status();
    if (*consumed) continue;
    if (header->kind != FrameKind::data || header->sequence <= sequence_) return false;
    // The peer went on without sending what this step awaits: its calls differ, and this operation cannot end
    // well. Its later frames are dropped, since the word why may come behind them.
    passed_by_ = step.peer;
    auto dropped = drop_message(link, *header, lanes_[lane].received);
    if (!dropped.ok()) return dropped.status();
    if (!*dropped) return false;
  }
}

Result<bool> drop_message(Link& link, const FrameHeader& header, std::uint64_t& taken) {
  std::byte nowhere[1024];
  while (taken < header.bytes) {
    auto got = link.read({nowhere, std::min<std::size_t>(sizeof nowhere, header.bytes - taken)});
    if (!got.ok()) return got.status();
    if (*got == 0) return false;
    taken += *got;
  }
  link.pop();
  taken = 0;
  return true;
}

Result<bool> LinkRun::drain_payload(LaneState& state, const Step& step, Link& link) {
  const std::uint64_t total = buffers_.bytes(step.dst);
  bool moved = false;
  while (state.received < total) {
    std::byte* to = buffers_.write(step.dst) + state.received;
    if (step.kind == StepKind::recv) {
      auto got = link.read({to, total - state.received});
      if (!got.ok()) return got.status();
      if (*got == 0) break;
      state.received += *got;
    } else {
      auto lent = link.borrow(std::min(buffers_.element, kLargestUnit),
                              std::min<std::uint64_t>(total - state.received, kReduceBlockBytes));
      if (!lent.ok()) return lent.status();
      if (lent->empty()) break;
      const void* sources[2] = {buffers_.read(step.src) + state.received, lent->data()};
      if (step.received_first) std::swap(sources[0], sources[1]);
      void* destination = to;
      reduce(combine_.reduction(lent->size() / buffers_.element, step.finish), sources, {&destination, 1});
      state.received += lent->size();
      link.release(lent->size());
    }
    moved = true;
  }
  return moved;
}

void LinkRun::run_local(const Step& step) {
  const std::uint64_t count =
      step.kind == StepKind::copy ? step.dst.count : program_->program.slices[step.destinations].count;
  run_local_step(program_->program, step, buffers_, combine_, 0, count);
}

void LinkRun::abandon(PeerTable& peers) {
  if (!program_) return;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    const LaneState& state = lanes_[lane];
    const auto& steps = program_->program.lanes[lane].steps;
    if (state.next >= steps.size()) continue;
    const Step& step = steps[state.next];
    if (step.kind == StepKind::send && state.cursor.header_bytes > 0) {
      peers.adopt_rest(step.peer, header_of(lane, step.src),
                       {buffers_.read(step.src), buffers_.bytes(step.src)}, state.cursor);
    }
  }
  lanes_.clear();
  program_.reset();
}

std::uint64_t LinkRun::taken_from(int peer) const {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    const auto& steps = program_->program.lanes[lane].steps;
    if (lanes_[lane].next >= steps.size()) continue;
    const Step& step = steps[lanes_[lane].next];
    if (is_receive(step.kind) && step.peer == peer && lanes_[lane].received > 0) return lanes_[lane].received;
  }
  return 0;
}

void LinkRun::waiting_for(std::vector<int>& peers) const {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    const auto& steps = program_->program.lanes[lane].steps;
    if (lanes_[lane].next >= steps.size()) continue;
    const Step& step = steps[lanes_[lane].next];
    if (ready(step) && step.peer != kSelf &&
        std::find(peers.begin(), peers.end(), step.peer) == peers.end()) {
      peers.push_back(step.peer);
    }
  }
}

}  // namespace lockstep::internal
