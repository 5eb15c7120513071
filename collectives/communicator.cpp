// The public face: every call becomes a Call or a Message for the engine.
#include "lockstep/communicator.hpp"

#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "collectives/forked_child.hpp"
#include "lib/net/fd.hpp"

namespace lockstep {
namespace {

using internal::CallBuilder;
using internal::CallFacts;
using internal::CommunicatorCore;
using internal::Message;
using internal::movement;
using internal::reduction;
using internal::refuse_in_forked_child;
using Counts = std::span<const std::size_t>;

void run(CommunicatorCore& core, CallBuilder call) {
  refuse_in_forked_child();
  core.engine().run(call.build()).throw_if_error();
}

Work start(CommunicatorCore& core, CallBuilder call) {
  refuse_in_forked_child();
  return Work(core.engine().start(call.build()));
}

/// Apart from run() of facts, so that a repeated call does not pay for what this needs of the stack.
[[gnu::cold]] void run_anew(CommunicatorCore& core, const CallFacts& facts, const void* input, void* output,
                            const CallOptions& options) {
  run(core, std::move(CallBuilder(facts, core.engine(), options).buffers(input, output)));
}

/// A call without counts, which may be like an earlier one.
void run(CommunicatorCore& core, const CallFacts& facts, const void* input, void* output,
         const CallOptions& options) {
  refuse_in_forked_child();
  const auto ended = core.engine().run_again(facts, input, output, options);
  if (!ended) return run_anew(core, facts, input, output, options);
  ended->throw_if_error();
}

Work start(CommunicatorCore& core, const CallFacts& facts, const void* input, void* output,
           const CallOptions& options) {
  return start(core, std::move(CallBuilder(facts, core.engine(), options).buffers(input, output)));
}

Message checked(CommunicatorCore& core, Message message, const CallOptions& options) {
  refuse_in_forked_child();
  message.timeout = internal::timeout_of(options);
  internal::check_message(message, core.size()).throw_if_error();
  return message;
}

RecvStatus run(CommunicatorCore& core, const Message& message, const CallOptions& options) {
  auto done = core.engine().run(checked(core, message, options));
  done.status().throw_if_error();
  return *done;
}

Work start(CommunicatorCore& core, const Message& message, const CallOptions& options) {
  return Work(core.engine().start(checked(core, message, options)));
}

}  // namespace

Communicator::Communicator(std::shared_ptr<CommunicatorCore> core) noexcept : core_(std::move(core)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return core_->rank(); }
int Communicator::size() const noexcept { return core_->size(); }
std::string Communicator::describe() const { return core_->describe(); }
ErrorCode Communicator::state() const noexcept {
  return internal::in_forked_child() ? ErrorCode::not_supported : core_->engine().poll_state();
}

std::optional<Communicator> Communicator::split(int color, int key) {
  refuse_in_forked_child();
  auto part = core_->split(color, key);
  part.status().with_context("split").throw_if_error();
  if (*part == nullptr) return std::nullopt;
  return Communicator(std::move(*part));
}

void Communicator::abort(std::string_view reason) {
  refuse_in_forked_child();
  core_->abort(reason);
}

void Communicator::finalize() {
  refuse_in_forked_child();
  core_->finalize().with_context("finalize").throw_if_error();
}

// ---- point to point ----

static Message outgoing(const void* buffer, std::size_t count, DataType type, int destination, int tag) {
  return {true, const_cast<void*>(buffer), count, type, destination, tag, 0};
}
static Message incoming(void* buffer, std::size_t count, DataType type, int source, int tag) {
  return {false, buffer, count, type, source, tag, 0};
}

void Communicator::send(const void* buffer, std::size_t count, DataType type, int destination, int tag,
                        const CallOptions& options) {
  run(*core_, outgoing(buffer, count, type, destination, tag), options);
}
Work Communicator::send_async(const void* buffer, std::size_t count, DataType type, int destination, int tag,
                              const CallOptions& options) {
  return start(*core_, outgoing(buffer, count, type, destination, tag), options);
}
RecvStatus Communicator::recv(void* buffer, std::size_t count, DataType type, int source, int tag,
                              const CallOptions& options) {
  return run(*core_, incoming(buffer, count, type, source, tag), options);
}
Work Communicator::recv_async(void* buffer, std::size_t count, DataType type, int source, int tag,
                              const CallOptions& options) {
  return start(*core_, incoming(buffer, count, type, source, tag), options);
}

// ---- collectives: the blocking and the asynchronous form differ in how they end ----

void Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const CallOptions& options) {
  run(*core_, reduction(Collective::all_reduce, count, type, op), input, output, options);
}
Work Communicator::all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                    ReduceOp op, const CallOptions& options) {
  return start(*core_, reduction(Collective::all_reduce, count, type, op), input, output, options);
}

void Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                          int root, const CallOptions& options) {
  run(*core_, reduction(Collective::reduce, count, type, op, root), input, output, options);
}
Work Communicator::reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                ReduceOp op, int root, const CallOptions& options) {
  return start(*core_, reduction(Collective::reduce, count, type, op, root), input, output, options);
}

void Communicator::broadcast(void* buffer, std::size_t count, DataType type, int root,
                             const CallOptions& options) {
  run(*core_, movement(Collective::broadcast, count, type, root), buffer, buffer, options);
}
Work Communicator::broadcast_async(void* buffer, std::size_t count, DataType type, int root,
                                   const CallOptions& options) {
  return start(*core_, movement(Collective::broadcast, count, type, root), buffer, buffer, options);
}

void Communicator::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                           const CallOptions& options) {
  run(*core_, movement(Collective::scatter, count, type, root), input, output, options);
}
Work Communicator::scatter_async(const void* input, void* output, std::size_t count, DataType type, int root,
                                 const CallOptions& options) {
  return start(*core_, movement(Collective::scatter, count, type, root), input, output, options);
}

void Communicator::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                          const CallOptions& options) {
  run(*core_, movement(Collective::gather, count, type, root), input, output, options);
}
Work Communicator::gather_async(const void* input, void* output, std::size_t count, DataType type, int root,
                                const CallOptions& options) {
  return start(*core_, movement(Collective::gather, count, type, root), input, output, options);
}

void Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  run(*core_, movement(Collective::all_gather, count, type), input, output, options);
}
Work Communicator::all_gather_async(const void* input, void* output, std::size_t count, DataType type,
                                    const CallOptions& options) {
  return start(*core_, movement(Collective::all_gather, count, type), input, output, options);
}

void Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  ReduceOp op, const CallOptions& options) {
  run(*core_, reduction(Collective::reduce_scatter, count, type, op), input, output, options);
}
Work Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                        ReduceOp op, const CallOptions& options) {
  return start(*core_, reduction(Collective::reduce_scatter, count, type, op), input, output, options);
}

void Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  run(*core_, movement(Collective::all_to_all, count, type), input, output, options);
}
Work Communicator::all_to_all_async(const void* input, void* output, std::size_t count, DataType type,
                                    const CallOptions& options) {
  return start(*core_, movement(Collective::all_to_all, count, type), input, output, options);
}

void Communicator::barrier(const CallOptions& options) {
  run(*core_, CallFacts{.collective = Collective::barrier}, nullptr, nullptr, options);
}
Work Communicator::barrier_async(const CallOptions& options) {
  return start(*core_, CallFacts{.collective = Collective::barrier}, nullptr, nullptr, options);
}

// ---- v-variants: the arguments become a CallBuilder once ----

static CallBuilder scatter_v_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                  Counts counts, void* output, std::size_t output_count, DataType type,
                                  int root) {
  CallBuilder call(Collective::scatter_v, core.engine(), options);
  call.elements(type, 0).root(root).root_counts(counts, output_count).buffers(input, output);
  return call;
}
void Communicator::scatter_v(const void* input, Counts counts, void* output, std::size_t output_count,
                             DataType type, int root, const CallOptions& options) {
  run(*core_, scatter_v_call(*core_, options, input, counts, output, output_count, type, root));
}
Work Communicator::scatter_v_async(const void* input, Counts counts, void* output, std::size_t output_count,
                                   DataType type, int root, const CallOptions& options) {
  return start(*core_, scatter_v_call(*core_, options, input, counts, output, output_count, type, root));
}

static CallBuilder gather_v_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                 std::size_t input_count, void* output, Counts counts, DataType type,
                                 int root) {
  CallBuilder call(Collective::gather_v, core.engine(), options);
  call.elements(type, 0).root(root).root_counts(counts, input_count).buffers(input, output);
  return call;
}
void Communicator::gather_v(const void* input, std::size_t input_count, void* output, Counts counts,
                            DataType type, int root, const CallOptions& options) {
  run(*core_, gather_v_call(*core_, options, input, input_count, output, counts, type, root));
}
Work Communicator::gather_v_async(const void* input, std::size_t input_count, void* output, Counts counts,
                                  DataType type, int root, const CallOptions& options) {
  return start(*core_, gather_v_call(*core_, options, input, input_count, output, counts, type, root));
}

static CallBuilder all_gather_v_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                     void* output, Counts counts, DataType type) {
  CallBuilder call(Collective::all_gather_v, core.engine(), options);
  call.elements(type, 0).counts(counts).buffers(input, output);
  return call;
}
void Communicator::all_gather_v(const void* input, void* output, Counts counts, DataType type,
                                const CallOptions& options) {
  run(*core_, all_gather_v_call(*core_, options, input, output, counts, type));
}
Work Communicator::all_gather_v_async(const void* input, void* output, Counts counts, DataType type,
                                      const CallOptions& options) {
  return start(*core_, all_gather_v_call(*core_, options, input, output, counts, type));
}

static CallBuilder reduce_scatter_v_call(CommunicatorCore& core, const CallOptions& options,
                                         const void* input, void* output, Counts counts, DataType type,
                                         ReduceOp op) {
  CallBuilder call(Collective::reduce_scatter_v, core.engine(), options);
  call.elements(type, 0).reduction(op).counts(counts).buffers(input, output);
  return call;
}
void Communicator::reduce_scatter_v(const void* input, void* output, Counts counts, DataType type,
                                    ReduceOp op, const CallOptions& options) {
  run(*core_, reduce_scatter_v_call(*core_, options, input, output, counts, type, op));
}
Work Communicator::reduce_scatter_v_async(const void* input, void* output, Counts counts, DataType type,
                                          ReduceOp op, const CallOptions& options) {
  return start(*core_, reduce_scatter_v_call(*core_, options, input, output, counts, type, op));
}

static CallBuilder all_to_all_v_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                     Counts send_counts, void* output, Counts recv_counts, DataType type) {
  CallBuilder call(Collective::all_to_all_v, core.engine(), options);
  call.elements(type, 0).pair_counts(send_counts, recv_counts).buffers(input, output);
  return call;
}
void Communicator::all_to_all_v(const void* input, Counts send_counts, void* output, Counts recv_counts,
                                DataType type, const CallOptions& options) {
  run(*core_, all_to_all_v_call(*core_, options, input, send_counts, output, recv_counts, type));
}
Work Communicator::all_to_all_v_async(const void* input, Counts send_counts, void* output, Counts recv_counts,
                                      DataType type, const CallOptions& options) {
  return start(*core_, all_to_all_v_call(*core_, options, input, send_counts, output, recv_counts, type));
}

}  // namespace lockstep
