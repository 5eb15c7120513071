// The public face: every call becomes a Call or a Message for the engine.
#include "lockstep/communicator.hpp"

#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "collectives/forked_child.hpp"
#include "lib/net/fd.hpp"

namespace lockstep {
namespace {

using internal::CallBuilder;
using internal::CommunicatorCore;
using internal::Message;
using internal::refuse_in_forked_child;
using Counts = std::span<const std::size_t>;
using internal::Status;

void run(CommunicatorCore& core, CallBuilder call) {
  refuse_in_forked_child();
  core.engine().run(call.build()).throw_if_error();
}

/// Whether the call was like the one before, and so has run.
bool ran_again(CommunicatorCore& core, const internal::CallFacts& facts, const void* input, void* output,
               const CallOptions& options) {
  refuse_in_forked_child();
  const auto ended = core.engine().run_again(facts, input, output, options);
  if (ended) ended->throw_if_error();
  return ended.has_value();
}

Work start(CommunicatorCore& core, CallBuilder call) {
  refuse_in_forked_child();
  return Work(core.engine().start(call.build()));
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
  part.status().throw_if_error();
  if (*part == nullptr) return std::nullopt;
  return Communicator(std::move(*part));
}

void Communicator::abort(std::string_view reason) {
  refuse_in_forked_child();
  const int self = core_->rank();
  core_->engine().request_revoke(
      Status(ErrorCode::aborted, core_->engine().who(self) + " aborted: " + std::string(reason), self));
}

void Communicator::finalize() {
  refuse_in_forked_child();
  core_->finalize().throw_if_error();
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

// ---- collectives: the arguments become a CallBuilder once; the blocking and the asynchronous form differ in
// how they end ----

static CallBuilder all_reduce_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                   void* output, std::size_t count, DataType type, ReduceOp op) {
  CallBuilder call(Collective::all_reduce, core.engine(), options);
  call.elements(type, count).reduction(op).buffers(input, output);
  return call;
}
void Communicator::all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                              const CallOptions& options) {
  const internal::CallFacts facts{
      .collective = Collective::all_reduce, .type = type, .op = op, .count = count};
  if (ran_again(*core_, facts, input, output, options)) return;
  run(*core_, all_reduce_call(*core_, options, input, output, count, type, op));
}
Work Communicator::all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                    ReduceOp op, const CallOptions& options) {
  return start(*core_, all_reduce_call(*core_, options, input, output, count, type, op));
}

static CallBuilder reduce_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                               void* output, std::size_t count, DataType type, ReduceOp op, int root) {
  CallBuilder call(Collective::reduce, core.engine(), options);
  call.elements(type, count).reduction(op).root(root).buffers(input, output);
  return call;
}
void Communicator::reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                          int root, const CallOptions& options) {
  const internal::CallFacts facts{
      .collective = Collective::reduce, .type = type, .op = op, .root = root, .count = count};
  if (ran_again(*core_, facts, input, output, options)) return;
  run(*core_, reduce_call(*core_, options, input, output, count, type, op, root));
}
Work Communicator::reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                ReduceOp op, int root, const CallOptions& options) {
  return start(*core_, reduce_call(*core_, options, input, output, count, type, op, root));
}

static CallBuilder broadcast_call(CommunicatorCore& core, const CallOptions& options, void* buffer,
                                  std::size_t count, DataType type, int root) {
  CallBuilder call(Collective::broadcast, core.engine(), options);
  call.elements(type, count).root(root).buffers(buffer, buffer);
  return call;
}
void Communicator::broadcast(void* buffer, std::size_t count, DataType type, int root,
                             const CallOptions& options) {
  const internal::CallFacts facts{
      .collective = Collective::broadcast, .type = type, .root = root, .count = count};
  if (ran_again(*core_, facts, buffer, buffer, options)) return;
  run(*core_, broadcast_call(*core_, options, buffer, count, type, root));
}
Work Communicator::broadcast_async(void* buffer, std::size_t count, DataType type, int root,
                                   const CallOptions& options) {
  return start(*core_, broadcast_call(*core_, options, buffer, count, type, root));
}

static CallBuilder scatter_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                void* output, std::size_t count, DataType type, int root) {
  CallBuilder call(Collective::scatter, core.engine(), options);
  call.elements(type, count).root(root).buffers(input, output);
  return call;
}
void Communicator::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                           const CallOptions& options) {
  const internal::CallFacts facts{
      .collective = Collective::scatter, .type = type, .root = root, .count = count};
  if (ran_again(*core_, facts, input, output, options)) return;
  run(*core_, scatter_call(*core_, options, input, output, count, type, root));
}
Work Communicator::scatter_async(const void* input, void* output, std::size_t count, DataType type, int root,
                                 const CallOptions& options) {
  return start(*core_, scatter_call(*core_, options, input, output, count, type, root));
}

static CallBuilder gather_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                               void* output, std::size_t count, DataType type, int root) {
  CallBuilder call(Collective::gather, core.engine(), options);
  call.elements(type, count).root(root).buffers(input, output);
  return call;
}
void Communicator::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                          const CallOptions& options) {
  const internal::CallFacts facts{
      .collective = Collective::gather, .type = type, .root = root, .count = count};
  if (ran_again(*core_, facts, input, output, options)) return;
  run(*core_, gather_call(*core_, options, input, output, count, type, root));
}
Work Communicator::gather_async(const void* input, void* output, std::size_t count, DataType type, int root,
                                const CallOptions& options) {
  return start(*core_, gather_call(*core_, options, input, output, count, type, root));
}

static CallBuilder all_gather_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                   void* output, std::size_t count, DataType type) {
  CallBuilder call(Collective::all_gather, core.engine(), options);
  call.elements(type, count).buffers(input, output);
  return call;
}
void Communicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  const internal::CallFacts facts{.collective = Collective::all_gather, .type = type, .count = count};
  if (ran_again(*core_, facts, input, output, options)) return;
  run(*core_, all_gather_call(*core_, options, input, output, count, type));
}
Work Communicator::all_gather_async(const void* input, void* output, std::size_t count, DataType type,
                                    const CallOptions& options) {
  return start(*core_, all_gather_call(*core_, options, input, output, count, type));
}

static CallBuilder reduce_scatter_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                       void* output, std::size_t count, DataType type, ReduceOp op) {
  CallBuilder call(Collective::reduce_scatter, core.engine(), options);
  call.elements(type, count).reduction(op).buffers(input, output);
  return call;
}
void Communicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                  ReduceOp op, const CallOptions& options) {
  const internal::CallFacts facts{
      .collective = Collective::reduce_scatter, .type = type, .op = op, .count = count};
  if (ran_again(*core_, facts, input, output, options)) return;
  run(*core_, reduce_scatter_call(*core_, options, input, output, count, type, op));
}
Work Communicator::reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                        ReduceOp op, const CallOptions& options) {
  return start(*core_, reduce_scatter_call(*core_, options, input, output, count, type, op));
}

static CallBuilder all_to_all_call(CommunicatorCore& core, const CallOptions& options, const void* input,
                                   void* output, std::size_t count, DataType type) {
  CallBuilder call(Collective::all_to_all, core.engine(), options);
  call.elements(type, count).buffers(input, output);
  return call;
}
void Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                              const CallOptions& options) {
  const internal::CallFacts facts{.collective = Collective::all_to_all, .type = type, .count = count};
  if (ran_again(*core_, facts, input, output, options)) return;
  run(*core_, all_to_all_call(*core_, options, input, output, count, type));
}
Work Communicator::all_to_all_async(const void* input, void* output, std::size_t count, DataType type,
                                    const CallOptions& options) {
  return start(*core_, all_to_all_call(*core_, options, input, output, count, type));
}

static CallBuilder barrier_call(CommunicatorCore& core, const CallOptions& options) {
  CallBuilder call(Collective::barrier, core.engine(), options);
  return call;
}
void Communicator::barrier(const CallOptions& options) {
  if (ran_again(*core_, {.collective = Collective::barrier}, nullptr, nullptr, options)) return;
  run(*core_, barrier_call(*core_, options));
}
Work Communicator::barrier_async(const CallOptions& options) {
  return start(*core_, barrier_call(*core_, options));
}

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
