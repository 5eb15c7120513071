// From a call to what runs: its shape, the choice of an algorithm, the program over links or in the domain.
#include <algorithm>
#include <new>

#include "collectives/engine/engine.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/domain/staging_window.hpp"
#include "lib/memory/segment.hpp"
#include "lib/reduce/average.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep::internal {

/// In place: the shape's lists keep their capacity, and a repeated call finds what it had.
void Engine::set_shape(Operation& operation) const {
  const Call& call = operation.call;
  if (operation.shape_facts == call.facts && call.counts.empty()) return;
  Shape& shape = operation.shape;
  const std::size_t element = size_of(call.facts.type);
  shape.collective = call.facts.collective;
  shape.rank = group_.rank;
  shape.world = group_.size();
  shape.root = call.facts.root;
  shape.count = call.facts.count;
  shape.segment = memory_ != nullptr ? 0 : segment_bytes_ / element;  // A device wants few large steps.
  shape.streams = choices_->ground().streams;
  shape.staging =
      staging_window(shape, element, domain_ != nullptr ? domain_->staging_bytes() : kStagingBytes);
  if (!hosts_.empty()) shape.hosts = hosts_;
  shape.counts.assign(call.counts.begin(), call.counts.end());
  shape.recv_counts.assign(call.recv_counts.begin(), call.recv_counts.end());
  operation.shape_facts.reset();
  if (call.counts.empty()) operation.shape_facts = call.facts;
}

Result<Selection> Engine::selection_for(const CallFacts& facts, const Shape& shape) {
  const std::uint64_t hash = hash_of(facts);
  KnownCall& known = known_calls_[hash % known_calls_.size()];
  if (!known.valid || known.facts != facts || !shape.counts.empty()) {
    auto selection =
        memory_ != nullptr ? memory_->choose(facts, shape) : choose(facts, shape, capabilities_, *choices_);
    if (!selection.ok() || !shape.counts.empty()) return selection;
    if (known.repeatable != nullptr) free_.push_back(known.repeatable);
    known = {facts, hash, true, *selection};
  }
  last_ = &known;
  return known.selection;
}

Buffers Engine::buffers_of(const Call& call) {
  Buffers buffers;
  buffers.element = size_of(call.facts.type);
  buffers.self = group_.rank;
  buffers.input = static_cast<const std::byte*>(call.input);
  buffers.output = static_cast<std::byte*>(call.output);
  buffers.hand_over = &hand_over_;
  return buffers;
}

Combine Engine::combine_of(const Call& call) const {
  const double world = group_.size();
  return {call.facts.type, call.facts.op, call.user_op, world, false, call.scale, call.device_scale};
}

Status Engine::launch(Operation& operation) try {
  const Call& call = operation.call;
  const bool alone = group_.size() == 1;
  Result<Selection> selection = Selection();
  if (!alone) {
    set_shape(operation);
    selection = selection_for(call.facts, operation.shape);
    if (!selection.ok()) return selection.status();
  }
  Buffers buffers = buffers_of(call);
  if (reduces_here(call) && call.facts.op == ReduceOp::premul_sum)
    buffers.input = scaled_input(operation, call.scale);
  if (alone) return launch_alone(operation, buffers, combine_of(call));
  if (selection->links != nullptr)
    return launch_links(operation, *selection->links, buffers, combine_of(call));
  in_domain_.push_back(&operation);
  launch_domain(operation, *selection, hash_of(call.facts), buffers, combine_of(call));
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory_;
}

/// A device does it itself.
bool Engine::reduces_here(const Call& call) const {
  return is_reduction(call.facts.collective) && memory_ == nullptr;
}

/// A copy of the input. Of an all_reduce it lies in the output, where the call goes on in place.
const std::byte* Engine::scaled_input(Operation& operation, double factor) {
  const Call& call = operation.call;
  void* copy = call.output;
  if (call.facts.collective != Collective::all_reduce) {
    scratch_.take(operation.scaled, call.input_elements * size_of(call.facts.type));
    copy = operation.scaled.memory.get();
  }
  scale_copy(call.facts.type, call.input, copy, call.input_elements, factor);
  return static_cast<const std::byte*>(copy);
}

/// A group of one: the output is the input.
Status Engine::launch_alone(Operation& operation, const Buffers& buffers, const Combine& combine) {
  operation.path = Operation::Path::local;
  const std::uint64_t count = std::min(operation.call.input_elements, operation.call.output_elements);
  if (memory_ != nullptr) {
    if (count == 0) return {};
    Step copy;
    copy.src = {Space::input, kSelf, 0, count};
    copy.dst = {Space::output, kSelf, 0, count};
    LOCKSTEP_RETURN_IF_ERROR(memory_->run({}, copy, buffers, combine));
    return memory_->complete();
  }
  if (count > 0 && buffers.input != buffers.output)
    copy_bytes(buffers.output, buffers.input, count * buffers.element);
  return {};
}

Status Engine::launch_links(Operation& operation, const Algorithm& algorithm, const Buffers& plain,
                            const Combine& whole) {
  operation.path = Operation::Path::links;
  auto program = programs_.get(algorithm, operation.shape);
  Buffers buffers = plain;
  const std::size_t bytes = program->program.scratch * buffers.element;
  if (bytes > 0) {
    scratch_.take(operation.scratch, sizeof(FrameHeader) + bytes);
    buffers.scratch = operation.scratch.memory.get() + sizeof(FrameHeader);
  }
  Combine combine = whole;
  if (reduces_here(operation.call) && combine.op == ReduceOp::avg) {
    const AverageSteps steps = average_steps(combine.type, group_.size());
    if (steps.factor != 1) buffers.input = scaled_input(operation, steps.factor);
    combine.divisor = steps.divisor;
  }
  peers_of(operation.urgent).enter(operation.sequence, program->send_peers);
  operation.link_run.begin(std::move(program), buffers, combine, operation.call.facts, operation.sequence);
  return {};
}

/// A user's operator may take for ever, and where it is a thread's that writes to others' memory they could
/// not end before it. Every rank comes to the same.
bool Engine::must_stage(const Call& call, const Selection& selection) const {
  if (call.facts.op != ReduceOp::user || selection.staged == nullptr) return false;
  const auto& members = group_.members;
  for (auto one = members.begin(); one != members.end(); ++one) {
    const auto same = [&](const Member& other) { return other.process == one->process; };
    if (one->process != 0 && std::any_of(one + 1, members.end(), same)) return true;
  }
  return false;
}

void Engine::launch_domain(Operation& operation, const Selection& chosen, std::uint64_t facts_hash,
                           const Buffers& buffers, const Combine& combine) {
  const Call& call = operation.call;
  Selection selection = chosen;
  if (must_stage(call, selection)) selection.registered = nullptr;
  const CallIdentity identity{operation.sequence, fingerprint_of(facts_hash, operation.sequence)};
  if (selection.inline_line) {
    operation.path = Operation::Path::inline_line;
    operation.inline_run.begin({call.facts, buffers.input, buffers.output, &call.user_op},
                               identity.fingerprint, inline_calls_++);
    return;
  }
  operation.path = Operation::Path::domain;
  const std::uint64_t most = std::max(call.input_elements, call.output_elements);
  const bool past_caches = most * buffers.element >= past_caches_from_;
  operation.domain_run.begin(
      {selection.staged, selection.registered, may_pull(selection), &operation.shape, past_caches, memory_},
      buffers, combine, identity, offered_buffers(call, selection, buffers.input));
}

bool Engine::may_pull(const Selection& selection) const {
  return selection.pull && !one_process_ && memory_ == nullptr;
}

/// `input`: of the call, or its scaled copy.
OfferedBuffers Engine::offered_buffers(const Call& call, const Selection& selection,
                                       const void* input) const {
  OfferedBuffers offered;
  if (selection.registered == nullptr) return offered;
  const std::size_t element = size_of(call.facts.type);
  const auto reference = [&](const void* pointer, std::uint64_t elements, std::size_t& of_segment) {
    if (elements == 0) return SegmentRef{.owner = kUnusedBuffer};
    if (memory_ != nullptr) {  // Peers would read the input unscaled.
      if (call.facts.op == ReduceOp::premul_sum && is_reduction(call.facts.collective)) return SegmentRef{};
      return memory_->reference(pointer, elements * element);
    }
    if (one_process_) return direct_ref(pointer);
    const auto segment = find_segment(pointer, elements * element);
    if (segment) of_segment = elements * element;
    return segment ? *segment : may_pull(selection) ? direct_ref(pointer) : SegmentRef{};
  };
  offered.input = reference(input, call.input_elements, offered.input_bytes);
  const bool in_place = input == call.output && call.input_elements == call.output_elements;
  offered.output =
      in_place ? offered.input : reference(call.output, call.output_elements, offered.output_bytes);
  return offered;
}

}  // namespace lockstep::internal
