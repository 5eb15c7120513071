// C API: collectives and messages. A null `work` takes the blocking call, which is the shorter path.
#include "collectives/c_api.hpp"
#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "collectives/forked_child.hpp"
#include "collectives/select/names.hpp"

using lockstep::Communicator;
using lockstep::internal::guarded;
using lockstep::internal::hand_out;
using lockstep::internal::required;
using lockstep::internal::to_op;
using lockstep::internal::to_options;
using lockstep::internal::to_type;

namespace {

/// A null array is an empty one: the call says what is missing.
std::span<const size_t> per_rank(const size_t* counts, lockstep_comm_t comm) {
  return counts == nullptr || comm == nullptr
             ? std::span<const size_t>()
             : std::span(counts, static_cast<size_t>(comm->communicator.size()));
}

/// Makes the call in the form that the caller wants.
template <auto blocking, auto async, typename... Arguments>
lockstep_error_t call(lockstep_comm_t comm, lockstep_work_t* work, const Arguments&... arguments) {
  return guarded([&] {
    Communicator& communicator = required(comm, "comm").communicator;
    if (work == nullptr) {
      (communicator.*blocking)(arguments...);
    } else {
      hand_out((communicator.*async)(arguments...), work);
    }
  });
}

lockstep::Collective collective_named(std::string_view name) {
  if (const auto found = lockstep::internal::find_collective(name)) return *found;
  throw lockstep::Error(lockstep::ErrorCode::invalid_argument,
                        "no collective is called \"" + std::string(name) + "\"");
}

}  // namespace

extern "C" {

lockstep_error_t lockstep_all_reduce(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                     lockstep_type_t type, lockstep_op_t op,
                                     const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::all_reduce, &Communicator::all_reduce_async>(
      comm, work, input, output, count, to_type(type), to_op(op), to_options(options));
}

lockstep_error_t lockstep_reduce(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                 lockstep_type_t type, lockstep_op_t op, int root,
                                 const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::reduce, &Communicator::reduce_async>(
      comm, work, input, output, count, to_type(type), to_op(op), root, to_options(options));
}

lockstep_error_t lockstep_broadcast(lockstep_comm_t comm, void* buffer, size_t count, lockstep_type_t type,
                                    int root, const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::broadcast, &Communicator::broadcast_async>(
      comm, work, buffer, count, to_type(type), root, to_options(options));
}

lockstep_error_t lockstep_scatter(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                  lockstep_type_t type, int root, const lockstep_options_t* options,
                                  lockstep_work_t* work) {
  return call<&Communicator::scatter, &Communicator::scatter_async>(comm, work, input, output, count,
                                                                    to_type(type), root, to_options(options));
}

lockstep_error_t lockstep_gather(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                 lockstep_type_t type, int root, const lockstep_options_t* options,
                                 lockstep_work_t* work) {
  return call<&Communicator::gather, &Communicator::gather_async>(comm, work, input, output, count,
                                                                  to_type(type), root, to_options(options));
}

lockstep_error_t lockstep_all_gather(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                     lockstep_type_t type, const lockstep_options_t* options,
                                     lockstep_work_t* work) {
  return call<&Communicator::all_gather, &Communicator::all_gather_async>(comm, work, input, output, count,
                                                                          to_type(type), to_options(options));
}

lockstep_error_t lockstep_reduce_scatter(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                         lockstep_type_t type, lockstep_op_t op,
                                         const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::reduce_scatter, &Communicator::reduce_scatter_async>(
      comm, work, input, output, count, to_type(type), to_op(op), to_options(options));
}

lockstep_error_t lockstep_all_to_all(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                     lockstep_type_t type, const lockstep_options_t* options,
                                     lockstep_work_t* work) {
  return call<&Communicator::all_to_all, &Communicator::all_to_all_async>(comm, work, input, output, count,
                                                                          to_type(type), to_options(options));
}

lockstep_error_t lockstep_barrier(lockstep_comm_t comm, const lockstep_options_t* options,
                                  lockstep_work_t* work) {
  return call<&Communicator::barrier, &Communicator::barrier_async>(comm, work, to_options(options));
}

lockstep_error_t lockstep_refuse(lockstep_comm_t comm, const char* collective, const char* reason) {
  return guarded([&] {
    lockstep::internal::refuse_in_forked_child();
    auto& engine = required(comm, "comm").communicator.core().engine();
    required(collective, "collective");
    required(reason, "reason");
    lockstep::internal::CallBuilder call(collective_named(collective), engine, {});
    call.refuse(lockstep::ErrorCode::invalid_argument, reason);
    engine.run(call.build()).throw_if_error();
  });
}

lockstep_error_t lockstep_scatter_v(lockstep_comm_t comm, const void* input, const size_t* counts,
                                    void* output, size_t output_count, lockstep_type_t type, int root,
                                    const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::scatter_v, &Communicator::scatter_v_async>(
      comm, work, input, per_rank(counts, comm), output, output_count, to_type(type), root,
      to_options(options));
}

lockstep_error_t lockstep_gather_v(lockstep_comm_t comm, const void* input, size_t input_count, void* output,
                                   const size_t* counts, lockstep_type_t type, int root,
                                   const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::gather_v, &Communicator::gather_v_async>(comm, work, input, input_count, output,
                                                                      per_rank(counts, comm), to_type(type),
                                                                      root, to_options(options));
}

lockstep_error_t lockstep_all_gather_v(lockstep_comm_t comm, const void* input, void* output,
                                       const size_t* counts, lockstep_type_t type,
                                       const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::all_gather_v, &Communicator::all_gather_v_async>(
      comm, work, input, output, per_rank(counts, comm), to_type(type), to_options(options));
}

lockstep_error_t lockstep_reduce_scatter_v(lockstep_comm_t comm, const void* input, void* output,
                                           const size_t* counts, lockstep_type_t type, lockstep_op_t op,
                                           const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::reduce_scatter_v, &Communicator::reduce_scatter_v_async>(
      comm, work, input, output, per_rank(counts, comm), to_type(type), to_op(op), to_options(options));
}

lockstep_error_t lockstep_all_to_all_v(lockstep_comm_t comm, const void* input, const size_t* send_counts,
                                       void* output, const size_t* recv_counts, lockstep_type_t type,
                                       const lockstep_options_t* options, lockstep_work_t* work) {
  return call<&Communicator::all_to_all_v, &Communicator::all_to_all_v_async>(
      comm, work, input, per_rank(send_counts, comm), output, per_rank(recv_counts, comm), to_type(type),
      to_options(options));
}

lockstep_error_t lockstep_send(lockstep_comm_t comm, const void* buffer, size_t count, lockstep_type_t type,
                               int destination, int tag, const lockstep_options_t* options,
                               lockstep_work_t* work) {
  return call<&Communicator::send, &Communicator::send_async>(comm, work, buffer, count, to_type(type),
                                                              destination, tag, to_options(options));
}

lockstep_error_t lockstep_recv(lockstep_comm_t comm, void* buffer, size_t count, lockstep_type_t type,
                               int source, int tag, const lockstep_options_t* options, int* from,
                               int* received_tag, size_t* received, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work != nullptr)
      return hand_out(communicator.recv_async(buffer, count, to_type(type), source, tag, to_options(options)),
                      work);
    const lockstep::RecvStatus status =
        communicator.recv(buffer, count, to_type(type), source, tag, to_options(options));
    if (from != nullptr) *from = status.source;
    if (received_tag != nullptr) *received_tag = status.tag;
    if (received != nullptr) *received = status.count;
  });
}

}  // extern "C"
