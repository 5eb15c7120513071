// Batch: operations that start and end together; small all_reduces of one kind travel as one.
#include <cstring>
#include <functional>
#include <list>

#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "lib/reduce/reduce.hpp"
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
  std::vector<BatchPart> parts;  // More than one: fused.
  CallOptions options;
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

bool fuses(const Entry& last, const CallOptions& options, DataType type, ReduceOp op, std::size_t bytes,
           const internal::CallFacts& facts) {
  std::size_t total = bytes;
  for (const Part& part : last.parts) total += part.bytes;
  return facts.collective == Collective::all_reduce && !last.parts.empty() && facts.type == type &&
         facts.op == op && op != ReduceOp::user && op != ReduceOp::premul_sum && total <= kFusedBytes &&
         last.options.algorithm == options.algorithm && last.options.timeout == options.timeout &&
         last.options.priority == options.priority;
}

}  // namespace

struct Batch::State {
  internal::CommunicatorCore* core;
  std::shared_ptr<internal::CommunicatorCore> keep;
  std::list<Entry> entries;
  std::vector<internal::CallFacts> facts;  // Of entries, in order.
  std::vector<Message> messages;
};

Batch::Batch(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;
Batch::~Batch() = default;

Batch Communicator::batch() {
  auto state = std::make_unique<Batch::State>();
  state->core = core_.get();
  state->keep = core_;
  return Batch(std::move(state));
}

void Batch::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                       const CallOptions& options) {
  const std::size_t bytes = count * size_of(type);
  auto& core = *state_->core;
  if (!state_->entries.empty() &&
      fuses(state_->entries.back(), options, type, op, bytes, state_->facts.back()) && count > 0 &&
      input != nullptr && output != nullptr) {
    state_->entries.back().parts.push_back({input, output, bytes});
    return;
  }
  Entry entry{CallBuilder(Collective::all_reduce, core.engine(), options), {{input, output, bytes}}, options};
  entry.call.elements(type, count).reduction(op).buffers(input, output);
  state_->entries.push_back(std::move(entry));
  internal::CallFacts facts{.collective = Collective::all_reduce, .type = type, .op = op};
  state_->facts.push_back(facts);
}

void Batch::broadcast(void* buffer, std::size_t count, DataType type, int root, const CallOptions& options) {
  auto& core = *state_->core;
  Entry entry{CallBuilder(Collective::broadcast, core.engine(), options), {}, options};
  entry.call.elements(type, count).root(root).buffers(buffer, buffer);
  state_->entries.push_back(std::move(entry));
  internal::CallFacts facts{.collective = Collective::broadcast, .type = type};
  state_->facts.push_back(facts);
}

void Batch::send(const void* buffer, std::size_t count, DataType type, int destination, int tag) {
  state_->messages.push_back(
      {true, const_cast<void*>(buffer), count, type, destination, tag, internal::default_timeout()});
  internal::check_message(state_->messages.back(), state_->core->size()).throw_if_error();
}

void Batch::recv(void* buffer, std::size_t count, DataType type, int source, int tag) {
  state_->messages.push_back({false, buffer, count, type, source, tag, internal::default_timeout()});
  internal::check_message(state_->messages.back(), state_->core->size()).throw_if_error();
}

namespace {

/// Packs the parts behind each other; the hook unpacks the result.
std::function<void(bool)> fuse(Entry& entry, DataType type) {
  std::size_t bytes = 0;
  for (const Part& part : entry.parts) bytes += part.bytes;
  auto packed = std::make_shared<std::vector<std::byte>>(bytes);
  std::byte* at = packed->data();
  for (const Part& part : entry.parts) {
    std::memcpy(at, part.input, part.bytes);
    at += part.bytes;
  }
  entry.call.elements(type, bytes / size_of(type)).buffers(packed->data(), packed->data());
  return [packed, parts = entry.parts](bool succeeded) {
    const std::byte* from = packed->data();
    for (const Part& part : parts) {
      if (succeeded) std::memcpy(part.output, from, part.bytes);
      from += part.bytes;
    }
  };
}

}  // namespace

Work Batch::submit() {
  std::vector<Call> calls;
  std::vector<std::function<void(bool)>> hooks;
  std::size_t index = 0;
  for (Entry& entry : state_->entries) {
    hooks.push_back(entry.parts.size() > 1 ? fuse(entry, state_->facts[index].type) : nullptr);
    calls.push_back(entry.call.build());
    ++index;
  }
  Work work(state_->core->engine().start_batch(calls, hooks, state_->messages));
  state_->entries.clear();
  state_->facts.clear();
  state_->messages.clear();
  return work;
}

}  // namespace lockstep
