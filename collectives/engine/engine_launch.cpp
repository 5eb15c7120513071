// From a call to what runs: its shape, the choice of an algorithm, the program over links or in the domain.
#include <algorithm>
#include <new>

#include "collectives/engine/engine.hpp"
#include "collectives/programs/blocks.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep::internal {

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
  const bool scales = call.facts.op == ReduceOp::premul_sum;
  return {call.facts.type, call.facts.op, call.user_op, world, false, scales, call.scale, call.device_scale};
}

Status Engine::launch(Operation& operation) try {
  const Call& call = operation.call;
  const bool alone = group_.size() == 1;
  Result<Selection> selection = Selection();
  if (!alone) {
    selector_.set_shape(operation);
    selection = selector_.choose_for(call.facts, operation.shape);
    if (!selection.ok()) return selection.status();
  }
  Buffers buffers = buffers_of(call);
  Combine combine = combine_of(call);
  if (stores_partial_sums(*selection)) combine.keep_in_range(group_.size());
  if (alone) return launch_alone(operation, buffers, combine);
  if (combine.scales && reduces_here(call)) buffers.input = scaled_input(operation, combine.scale);
  if (selection->links != nullptr) return launch_links(operation, *selection->links, buffers, combine);
  in_flight_.enter_domain(operation);
  launch_domain(operation, *selection, hash_of(call.facts), buffers, combine);
  return {};
} catch (const std::bad_alloc&) {
  return out_of_memory_;
}

/// A device does it itself.
bool Engine::reduces_here(const Call& call) const {
  return is_reduction(call.facts.collective) && memory_ == nullptr;
}

/// Where a copy of the input is to be. Of an all_reduce that is the output, where the call goes on in place.
const std::byte* Engine::scaled_input(Operation& operation, double factor) {
  const Call& call = operation.call;
  std::byte* copy = static_cast<std::byte*>(call.output);
  if (call.facts.collective != Collective::all_reduce) {
    pool_.scratch().take(operation.scaled, call.input_elements * size_of(call.facts.type));
    copy = operation.scaled.memory.get();
  }
  operation.scaling.begin(call.facts.type, static_cast<const std::byte*>(call.input), copy,
                          call.input_elements, factor);
  return copy;
}

/// A group of one: the output is the input, times the factor of a premul_sum.
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
  if (combine.scales && reduces_here(operation.call)) {
    operation.scaling.begin(combine.type, buffers.input, buffers.output, count, combine.scale);
  } else if (count > 0 && buffers.input != buffers.output) {
    copy_bytes(buffers.output, buffers.input, count * buffers.element);
  }
  return {};
}

Status Engine::launch_links(Operation& operation, const Algorithm& algorithm, const Buffers& plain,
                            const Combine& combine) {
  operation.path = Operation::Path::links;
  auto program = programs_.get(algorithm, operation.shape);
  Buffers buffers = plain;
  const std::size_t bytes = program->program.scratch * buffers.element;
  if (bytes > 0) {
    pool_.scratch().take(operation.scratch, sizeof(FrameHeader) + bytes);
    buffers.scratch = operation.scratch.memory.get() + sizeof(FrameHeader);
  }
  tables_.of(operation.urgent).enter(operation.sequence, program->send_peers);
  operation.link_run.begin(std::move(program), buffers, combine, operation.call.facts, operation.sequence);
  return {};
}

void Engine::launch_domain(Operation& operation, const Selection& chosen, std::uint64_t facts_hash,
                           const Buffers& buffers, const Combine& combine) {
  const Call& call = operation.call;
  const Selection selection = selector_.as_may_run(chosen, call);
  const CallIdentity identity{operation.sequence, fingerprint_of(facts_hash, operation.sequence)};
  if (selection.inline_line) {
    operation.path = Operation::Path::inline_line;
    operation.inline_run.begin({call.facts, buffers.input, buffers.output, &call.user_op},
                               identity.fingerprint, inline_calls_++);
    return;
  }
  operation.path = Operation::Path::domain;
  operation.domain_run.begin(selector_.domain_choice(operation, selection), buffers, combine, identity,
                             selector_.offers_of(call, selection, buffers.input));
}

}  // namespace lockstep::internal
