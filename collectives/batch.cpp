// Batch: operations that start and end together; small all_reduces of one kind travel as one.
#include <functional>
#include <list>

#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "collectives/forked_child.hpp"
#include "lib/reduce/copy.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep {

namespace internal {

struct BatchPart {
  const void* input;
  void* output;
  std::size_t bytes;
};

/// One collective of the batch: alone, or several all_reduces packed behind each other.
struct BatchEntry {
  CallBuilder call;
  std::vector<BatchPart> parts = {};  // More than one: fused. None: it travels alone.
  Status refusal = {};                // Of the first part that is wrong.
};

}  // namespace internal

using internal::Call;
using internal::CallBuilder;
using internal::Message;
using Part = internal::BatchPart;
using Entry = internal::BatchEntry;

namespace {

/// All_reduces together up to this size are fused: below it latency, not bandwidth, is what they cost.
constexpr std::size_t kFusedBytes = 64 << 10;

/// Whether an all_reduce may travel with others. By what all ranks share only, here and in fuse_together:
/// they fuse alike.
bool is_fusible(std::size_t count, DataType type, ReduceOp op) {
  return count > 0 && count <= kFusedBytes && size_of(type) > 0 && op != ReduceOp::user &&
         op != ReduceOp::premul_sum;
}

/// Whether both are fusible, and alike.
bool fuse_together(const Entry& last, const Entry& next) {
  if (last.parts.empty() || next.parts.empty()) return false;
  std::size_t total = next.parts.front().bytes;
  for (const Part& part : last.parts) total += part.bytes;
  const Call &one = last.call.call(), &other = next.call.call();
  return total <= kFusedBytes && one.facts.type == other.facts.type && one.facts.op == other.facts.op &&
         one.facts.algorithm == other.facts.algorithm && (one.priority > 0) == (other.priority > 0);
}

/// What its caller would be told of it alone.
internal::Status refusal_of(CallBuilder call) { return call.build().refusal; }

/// Puts `next` behind what `last` has. The whole is wanted as soon as any of its parts, and is as urgent.
void join(Entry& last, const Entry& next) {
  last.parts.push_back(next.parts.front());
  last.call.tighten(next.call.call());
  if (last.refusal.ok()) last.refusal = next.refusal;
}

}  // namespace

struct Batch::State {
  std::shared_ptr<internal::CommunicatorCore> core;
  std::list<Entry> entries;
  std::vector<Message> messages;

  Entry entry(const internal::CallFacts& facts, const void* input, void* output,
              const CallOptions& options) const {
    return {std::move(CallBuilder(facts, core->engine(), options).buffers(input, output))};
  }
  void add(const Message& message) {
    internal::check_message(message, core->size()).throw_if_error();
    messages.push_back(message);
  }
};

Batch::Batch(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

Batch Communicator::batch() {
  auto state = std::make_unique<Batch::State>();
  state->core = core_;
  return Batch(std::move(state));
}

void Batch::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                       const CallOptions& options) {
  const Part part{input, output, count * size_of(type)};
  Entry entry =
      state_->entry(internal::reduction(Collective::all_reduce, count, type, op), input, output, options);
  entry.refusal = refusal_of(entry.call);
  if (is_fusible(count, type, op)) entry.parts.push_back(part);
  if (!state_->entries.empty() && fuse_together(state_->entries.back(), entry)) {
    join(state_->entries.back(), entry);
  } else {
    state_->entries.push_back(std::move(entry));
  }
}

void Batch::broadcast(void* buffer, std::size_t count, DataType type, int root, const CallOptions& options) {
  state_->entries.push_back(
      state_->entry(internal::movement(Collective::broadcast, count, type, root), buffer, buffer, options));
}

void Batch::send(const void* buffer, std::size_t count, DataType type, int destination, int tag,
                 const CallOptions& options) {
  state_->add(
      {true, const_cast<void*>(buffer), count, type, destination, tag, internal::timeout_of(options)});
}

void Batch::recv(void* buffer, std::size_t count, DataType type, int source, int tag,
                 const CallOptions& options) {
  state_->add({false, buffer, count, type, source, tag, internal::timeout_of(options)});
}

namespace {

/// Packs the parts behind each other; the hook unpacks the result.
std::function<void(bool)> fuse(Entry& entry) {
  const DataType type = entry.call.call().facts.type;
  std::size_t bytes = 0;
  std::vector<std::size_t> counts;
  for (const Part& part : entry.parts) {
    bytes += part.bytes;
    counts.push_back(part.bytes / size_of(type));
  }
  auto packed = std::make_shared<std::vector<std::byte>>(bytes);
  std::byte* at = packed->data();
  if (!entry.refusal.ok()) {  // A pointer may be what is wrong.
    entry.call.refuse(entry.refusal.code(), entry.refusal.message());
  } else {
    for (const Part& part : entry.parts) {
      internal::copy_bytes(at, part.input, part.bytes);
      at += part.bytes;
    }
  }
  entry.call.elements(type, bytes / size_of(type)).agree_on(counts).buffers(packed->data(), packed->data());
  return [packed, parts = entry.parts](bool succeeded) {
    const std::byte* from = packed->data();
    for (const Part& part : parts) {
      if (succeeded) internal::copy_bytes(part.output, from, part.bytes);
      from += part.bytes;
    }
  };
}

}  // namespace

Work Batch::submit() {
  internal::refuse_in_forked_child();
  std::vector<Call> calls;
  std::vector<std::function<void(bool)>> hooks;
  for (Entry& entry : state_->entries) {
    hooks.push_back(entry.parts.size() > 1 ? fuse(entry) : nullptr);
    calls.push_back(entry.call.build());
  }
  Work work(state_->core->engine().start_batch(calls, hooks, state_->messages));
  state_->entries.clear();
  state_->messages.clear();
  return work;
}

}  // namespace lockstep
