#include "collectives/engine/selector.hpp"

#include <algorithm>
#include <set>

#include "collectives/engine/group_hosts.hpp"
#include "collectives/engine/wait_policy.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/domain/staging_window.hpp"
#include "lib/memory/segment.hpp"
#include "lib/reduce/average.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep::internal {
namespace {

Load load_of(const EngineGroup& group) {
  std::set<std::string> hosts;
  for (const Member& member : group.members) hosts.insert(member.host_id);
  const bool spare =
      std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return a_core_each(group, host); });
  return spare ? Load::spare : Load::crowded;
}

bool are_one_process(const std::vector<Member>& members) {
  return std::all_of(members.begin(), members.end(), [&](const Member& member) {
    return member.process != 0 && member.process == members.front().process;
  });
}

/// Whether some of them are threads of one process.
bool share_processes(const std::vector<Member>& members) {
  for (auto one = members.begin(); one != members.end(); ++one) {
    const auto same = [&](const Member& other) { return other.process == one->process; };
    if (one->process != 0 && std::any_of(one + 1, members.end(), same)) return true;
  }
  return false;
}

/// Whether a call in the domain has its inputs scaled before its program begins.
bool scales_average(const CallFacts& facts, const Selection& selection, int world) {
  return facts.op == ReduceOp::avg && selection.links == nullptr && stores_partial_sums(selection) &&
         average_steps(facts.type, world).factor != 1;
}

}  // namespace

Selector::Selector(const EngineGroup& group, Transport* transport, DomainMemory* memory, OperationPool& pool,
                   const SharedModel& model, Env& env)
    : group_(group),
      domain_(transport != nullptr ? transport->domain() : nullptr),
      memory_(memory),
      pool_(pool),
      capabilities_{group.size(), domain_ != nullptr, inline_bytes(group.size())},
      segment_bytes_(model.segment_bytes > 0 ? model.segment_bytes : kSegmentBytes),
      hosts_(hosts_of(group)),
      choices_(choice_table(model.model, {group.size(), load_of(group), segment_bytes_, hosts_,
                                          hosts_.empty() ? Network{} : model.network,
                                          transport == nullptr || transport->streams()})),
      past_caches_from_(model.model->non_temporal_bytes > 0 ? model.model->non_temporal_bytes
                                                            : nontemporal_threshold()),
      one_process_(are_one_process(group.members)),
      pull_trials_(env, domain_ != nullptr && memory_ == nullptr && !one_process_) {}

void Selector::set_shape(Operation& operation) const {
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

Result<Selection> Selector::choose_for(const CallFacts& facts, const Shape& shape) {
  const std::uint64_t hash = hash_of(facts);
  KnownCall& known = known_calls_[hash % known_calls_.size()];
  if (!known.valid || known.facts != facts || !shape.counts.empty()) {
    auto selection =
        memory_ != nullptr ? memory_->choose(facts, shape) : choose(facts, shape, capabilities_, *choices_);
    if (!selection.ok() || !shape.counts.empty()) return selection;
    if (scales_average(facts, *selection, shape.world)) return selection;
    if (known.repeatable != nullptr) pool_.give_back(*known.repeatable);
    known = {facts, hash, true, *selection};
  }
  last_ = &known;
  return known.selection;
}

bool Selector::recall(const CallFacts& facts) {
  if (last_ != nullptr && last_->facts == facts) return true;
  KnownCall& known = known_calls_[hash_of(facts) % known_calls_.size()];
  if (!known.valid || known.facts != facts) return false;
  last_ = &known;
  return true;
}

DomainChoice Selector::domain_choice(const Operation& operation, const Selection& selection) {
  const Call& call = operation.call;
  const std::uint64_t most = std::max(call.input_elements, call.output_elements);
  const bool past_caches = most * size_of(call.facts.type) >= past_caches_from_;
  DomainChoice choice{selection.staged, selection.registered};
  if (may_pull(selection)) {
    choice.pulled = selection.pulled;
    if (!selection.pull_untried)
      choice.trial = &pull_trials_.of(call.facts.collective, call_bytes(call.facts, call.counts));
  }
  choice.shape = &operation.shape;
  choice.past_caches = past_caches;
  choice.memory = memory_;
  return choice;
}

/// A user's operator may take for ever, and where it is a thread's that writes to others' memory they could
/// not end before it. Every rank comes to the same.
Selection Selector::as_may_run(const Selection& selection, const Call& call) const {
  Selection result = selection;
  if (call.facts.op == ReduceOp::user && selection.staged != nullptr && share_processes(group_.members))
    result.registered = nullptr;
  return result;
}

bool Selector::may_pull(const Selection& selection) const {
  return selection.pulled != nullptr && !one_process_ && memory_ == nullptr;
}

OfferedBuffers Selector::offers_of(const Call& call, const Selection& selection, const void* input) const {
  OfferedBuffers offered;
  if (selection.registered == nullptr && !may_pull(selection)) return offered;
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
