// C API: collectives and messages. A null `work` takes the blocking call, which is the shorter path.
#include "collectives/c_api.hpp"

using lockstep::internal::guarded;
using lockstep::internal::hand_out;
using lockstep::internal::required;
using lockstep::internal::to_op;
using lockstep::internal::to_options;
using lockstep::internal::to_type;

namespace {

/// A null array is an empty one: the call says what is missing.
std::span<const size_t> per_rank(const size_t* counts, const lockstep::Communicator& communicator) {
  return counts == nullptr ? std::span<const size_t>()
                           : std::span(counts, static_cast<size_t>(communicator.size()));
}

}  // namespace

extern "C" {

lockstep_error_t lockstep_all_reduce(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                     lockstep_type_t type, lockstep_op_t op,
                                     const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.all_reduce(input, output, count, to_type(type), to_op(op), to_options(options));
    hand_out(
        communicator.all_reduce_async(input, output, count, to_type(type), to_op(op), to_options(options)),
        work);
  });
}

lockstep_error_t lockstep_reduce(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                 lockstep_type_t type, lockstep_op_t op, int root,
                                 const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.reduce(input, output, count, to_type(type), to_op(op), root, to_options(options));
    hand_out(
        communicator.reduce_async(input, output, count, to_type(type), to_op(op), root, to_options(options)),
        work);
  });
}

lockstep_error_t lockstep_broadcast(lockstep_comm_t comm, void* buffer, size_t count, lockstep_type_t type,
                                    int root, const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.broadcast(buffer, count, to_type(type), root, to_options(options));
    hand_out(communicator.broadcast_async(buffer, count, to_type(type), root, to_options(options)), work);
  });
}

lockstep_error_t lockstep_scatter(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                  lockstep_type_t type, int root, const lockstep_options_t* options,
                                  lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.scatter(input, output, count, to_type(type), root, to_options(options));
    hand_out(communicator.scatter_async(input, output, count, to_type(type), root, to_options(options)),
             work);
  });
}

lockstep_error_t lockstep_gather(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                 lockstep_type_t type, int root, const lockstep_options_t* options,
                                 lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.gather(input, output, count, to_type(type), root, to_options(options));
    hand_out(communicator.gather_async(input, output, count, to_type(type), root, to_options(options)), work);
  });
}

lockstep_error_t lockstep_all_gather(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                     lockstep_type_t type, const lockstep_options_t* options,
                                     lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.all_gather(input, output, count, to_type(type), to_options(options));
    hand_out(communicator.all_gather_async(input, output, count, to_type(type), to_options(options)), work);
  });
}

lockstep_error_t lockstep_reduce_scatter(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                         lockstep_type_t type, lockstep_op_t op,
                                         const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.reduce_scatter(input, output, count, to_type(type), to_op(op), to_options(options));
    hand_out(communicator.reduce_scatter_async(input, output, count, to_type(type), to_op(op),
                                               to_options(options)),
             work);
  });
}

lockstep_error_t lockstep_all_to_all(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                     lockstep_type_t type, const lockstep_options_t* options,
                                     lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.all_to_all(input, output, count, to_type(type), to_options(options));
    hand_out(communicator.all_to_all_async(input, output, count, to_type(type), to_options(options)), work);
  });
}

lockstep_error_t lockstep_barrier(lockstep_comm_t comm, const lockstep_options_t* options,
                                  lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr) return communicator.barrier(to_options(options));
    hand_out(communicator.barrier_async(to_options(options)), work);
  });
}

lockstep_error_t lockstep_scatter_v(lockstep_comm_t comm, const void* input, const size_t* counts,
                                    void* output, size_t output_count, lockstep_type_t type, int root,
                                    const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.scatter_v(input, per_rank(counts, communicator), output, output_count,
                                    to_type(type), root, to_options(options));
    hand_out(communicator.scatter_v_async(input, per_rank(counts, communicator), output, output_count,
                                          to_type(type), root, to_options(options)),
             work);
  });
}

lockstep_error_t lockstep_gather_v(lockstep_comm_t comm, const void* input, size_t input_count, void* output,
                                   const size_t* counts, lockstep_type_t type, int root,
                                   const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.gather_v(input, input_count, output, per_rank(counts, communicator), to_type(type),
                                   root, to_options(options));
    hand_out(communicator.gather_v_async(input, input_count, output, per_rank(counts, communicator),
                                         to_type(type), root, to_options(options)),
             work);
  });
}

lockstep_error_t lockstep_all_gather_v(lockstep_comm_t comm, const void* input, void* output,
                                       const size_t* counts, lockstep_type_t type,
                                       const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.all_gather_v(input, output, per_rank(counts, communicator), to_type(type),
                                       to_options(options));
    hand_out(communicator.all_gather_v_async(input, output, per_rank(counts, communicator), to_type(type),
                                             to_options(options)),
             work);
  });
}

lockstep_error_t lockstep_reduce_scatter_v(lockstep_comm_t comm, const void* input, void* output,
                                           const size_t* counts, lockstep_type_t type, lockstep_op_t op,
                                           const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.reduce_scatter_v(input, output, per_rank(counts, communicator), to_type(type),
                                           to_op(op), to_options(options));
    hand_out(communicator.reduce_scatter_v_async(input, output, per_rank(counts, communicator), to_type(type),
                                                 to_op(op), to_options(options)),
             work);
  });
}

lockstep_error_t lockstep_all_to_all_v(lockstep_comm_t comm, const void* input, const size_t* send_counts,
                                       void* output, const size_t* recv_counts, lockstep_type_t type,
                                       const lockstep_options_t* options, lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.all_to_all_v(input, per_rank(send_counts, communicator), output,
                                       per_rank(recv_counts, communicator), to_type(type),
                                       to_options(options));
    hand_out(communicator.all_to_all_v_async(input, per_rank(send_counts, communicator), output,
                                             per_rank(recv_counts, communicator), to_type(type),
                                             to_options(options)),
             work);
  });
}

lockstep_error_t lockstep_send(lockstep_comm_t comm, const void* buffer, size_t count, lockstep_type_t type,
                               int destination, int tag, const lockstep_options_t* options,
                               lockstep_work_t* work) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    if (work == nullptr)
      return communicator.send(buffer, count, to_type(type), destination, tag, to_options(options));
    hand_out(communicator.send_async(buffer, count, to_type(type), destination, tag, to_options(options)),
             work);
  });
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
