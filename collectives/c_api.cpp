// C API: errors, memory, groups, works, plans and batches. The collectives are in c_api_collectives.cpp.
#include "collectives/c_api.hpp"

#include <chrono>
#include <new>

#include "collectives/communicator_core.hpp"
#include "collectives/forked_child.hpp"

using lockstep::Communicator;
using lockstep::internal::guarded;
using lockstep::internal::hand_out;
using lockstep::internal::required;
using lockstep::internal::to_op;
using lockstep::internal::to_options;
using lockstep::internal::to_type;

namespace lockstep::internal {
namespace {

thread_local std::string t_last_error;
thread_local int t_last_culprit = -1;

}  // namespace

lockstep_error_t remember(ErrorCode code, const char* text, int culprit) noexcept {
  try {
    t_last_error = text;
  } catch (const std::bad_alloc&) {
    t_last_error.clear();
  }
  t_last_culprit = culprit;
  return static_cast<lockstep_error_t>(code);
}

CallOptions to_options(const lockstep_options_t* options) {
  CallOptions result;
  if (options == nullptr) return result;
  if (options->timeout_ms != -1) result.timeout = std::chrono::milliseconds(options->timeout_ms);
  result.priority = options->priority;
  if (options->algorithm != nullptr) result.algorithm = options->algorithm;
  result.scale = options->scale;
  result.user_op = {options->combine, options->context};
  return result;
}

void hand_out(Work work, lockstep_work_t* out) {
  // Without a handle nobody could wait, and the operation would run on in the caller's buffers.
  lockstep_work_t handle = out != nullptr ? new (std::nothrow) lockstep_work{} : nullptr;
  if (handle == nullptr) work.wait();
  if (out == nullptr) return;
  if (handle == nullptr) throw std::bad_alloc();
  handle->work = std::move(work);
  *out = handle;
}

}  // namespace lockstep::internal

extern "C" {

const char* lockstep_last_error(void) { return lockstep::internal::t_last_error.c_str(); }
int lockstep_last_culprit(void) { return lockstep::internal::t_last_culprit; }
const char* lockstep_version(void) { return LOCKSTEP_VERSION; }
size_t lockstep_type_size(lockstep_type_t type) { return lockstep::size_of(to_type(type)); }

// ---- memory ----

lockstep_error_t lockstep_allocate(size_t bytes, void** pointer) {
  return guarded([&] {
    void*& result = required(pointer, "pointer");
    result = lockstep::allocate(bytes);
  });
}
void lockstep_free(void* pointer) { lockstep::free(pointer); }
lockstep_error_t lockstep_register(void* pointer, size_t bytes) {
  return guarded([&] { lockstep::register_buffer(pointer, bytes); });
}
lockstep_error_t lockstep_deregister(void* pointer) {
  return guarded([&] { lockstep::deregister_buffer(pointer); });
}

// ---- groups ----

lockstep_error_t lockstep_rendezvous_create(const char* job_id, const char* secret,
                                            lockstep_rendezvous_t* rendezvous) {
  return guarded([&] {
    lockstep_rendezvous_t& result = required(rendezvous, "rendezvous");
    result = new lockstep_rendezvous{
        lockstep::Rendezvous(job_id != nullptr ? job_id : "", secret != nullptr ? secret : "")};
  });
}
const char* lockstep_rendezvous_address(lockstep_rendezvous_t rendezvous) {
  return rendezvous != nullptr ? rendezvous->rendezvous.address().c_str() : nullptr;
}
void lockstep_rendezvous_free(lockstep_rendezvous_t rendezvous) { delete rendezvous; }

lockstep_error_t lockstep_create(const lockstep_init_t* init, lockstep_comm_t* comm) {
  return guarded([&] {
    required(comm, "comm");
    lockstep::InitOptions options;
    if (init != nullptr) {
      if (init->has_rank != 0) {
        options.rank = init->rank;
        options.world_size = init->world_size;
      }
      if (init->rendezvous != nullptr) options.rendezvous = init->rendezvous;
      if (init->job_id != nullptr) options.job_id = init->job_id;
      if (init->secret != nullptr) options.secret = init->secret;
      if (init->transports != nullptr) options.transports = init->transports;
      // A zeroed struct asks for the default, so that C++'s 0 has another number here.
      if (init->timeout_ms != 0)
        options.timeout = std::chrono::milliseconds(init->timeout_ms == -1 ? 0 : init->timeout_ms);
    }
    *comm = new lockstep_comm{Communicator::create(options)};
  });
}

lockstep_error_t lockstep_local_group(int n, const char* transports, lockstep_comm_t* comms) {
  return guarded([&] {
    required(comms, "comms");
    auto group = Communicator::local_group(n, transports != nullptr ? transports : "");
    for (int r = 0; r < n; ++r) comms[r] = new lockstep_comm{std::move(group[static_cast<size_t>(r)])};
  });
}

lockstep_error_t lockstep_split(lockstep_comm_t comm, int color, int key, lockstep_comm_t* part) {
  return guarded([&] {
    required(part, "part") = nullptr;
    auto made = required(comm, "comm").communicator.split(color, key);
    if (made) *part = new lockstep_comm{std::move(*made)};
  });
}

lockstep_error_t lockstep_finalize(lockstep_comm_t comm) {
  return guarded([&] { required(comm, "comm").communicator.finalize(); });
}
lockstep_error_t lockstep_abort(lockstep_comm_t comm, const char* reason) {
  return guarded([&] {
    required(comm, "comm").communicator.abort(reason != nullptr ? reason : "lockstep_abort() was called");
  });
}
void lockstep_comm_free(lockstep_comm_t comm) { delete comm; }
int lockstep_rank(lockstep_comm_t comm) { return comm != nullptr ? comm->communicator.rank() : -1; }
int lockstep_size(lockstep_comm_t comm) { return comm != nullptr ? comm->communicator.size() : -1; }
const char* lockstep_describe(lockstep_comm_t comm) {
  thread_local std::string t_description;
  const lockstep_error_t error =
      guarded([&] { t_description = required(comm, "comm").communicator.describe(); });
  return error == LOCKSTEP_OK ? t_description.c_str() : nullptr;
}
lockstep_error_t lockstep_state(lockstep_comm_t comm) {
  return guarded([&] {
    const Communicator& communicator = required(comm, "comm").communicator;
    lockstep::internal::refuse_in_forked_child();
    if (communicator.state() != lockstep::ErrorCode::ok)
      communicator.core().engine().reason().throw_if_error();
  });
}

// ---- batches ----

lockstep_error_t lockstep_batch_create(lockstep_comm_t comm, lockstep_batch_t* batch) {
  return guarded([&] {
    lockstep_batch_t& result = required(batch, "batch");
    result = new lockstep_batch{required(comm, "comm").communicator.batch()};
  });
}
lockstep_error_t lockstep_batch_all_reduce(lockstep_batch_t batch, const void* input, void* output,
                                           size_t count, lockstep_type_t type, lockstep_op_t op,
                                           const lockstep_options_t* options) {
  return guarded([&] {
    required(batch, "batch")
        .batch.all_reduce(input, output, count, to_type(type), to_op(op), to_options(options));
  });
}
lockstep_error_t lockstep_batch_broadcast(lockstep_batch_t batch, void* buffer, size_t count,
                                          lockstep_type_t type, int root, const lockstep_options_t* options) {
  return guarded([&] {
    required(batch, "batch").batch.broadcast(buffer, count, to_type(type), root, to_options(options));
  });
}
lockstep_error_t lockstep_batch_send(lockstep_batch_t batch, const void* buffer, size_t count,
                                     lockstep_type_t type, int destination, int tag,
                                     const lockstep_options_t* options) {
  return guarded([&] {
    required(batch, "batch").batch.send(buffer, count, to_type(type), destination, tag, to_options(options));
  });
}
lockstep_error_t lockstep_batch_recv(lockstep_batch_t batch, void* buffer, size_t count, lockstep_type_t type,
                                     int source, int tag, const lockstep_options_t* options) {
  return guarded([&] {
    required(batch, "batch").batch.recv(buffer, count, to_type(type), source, tag, to_options(options));
  });
}
lockstep_error_t lockstep_batch_submit(lockstep_batch_t batch, lockstep_work_t* work) {
  return guarded([&] { hand_out(required(batch, "batch").batch.submit(), work); });
}
void lockstep_batch_free(lockstep_batch_t batch) { delete batch; }

// ---- plans ----

lockstep_error_t lockstep_plan_all_reduce(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                          lockstep_type_t type, lockstep_op_t op,
                                          const lockstep_options_t* options, lockstep_plan_t* plan) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    lockstep_plan_t& result = required(plan, "plan");
    result = new lockstep_plan{
        communicator.plan_all_reduce(input, output, count, to_type(type), to_op(op), to_options(options))};
  });
}
lockstep_error_t lockstep_plan_broadcast(lockstep_comm_t comm, void* buffer, size_t count,
                                         lockstep_type_t type, int root, const lockstep_options_t* options,
                                         lockstep_plan_t* plan) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    lockstep_plan_t& result = required(plan, "plan");
    result = new lockstep_plan{
        communicator.plan_broadcast(buffer, count, to_type(type), root, to_options(options))};
  });
}
lockstep_error_t lockstep_plan_all_gather(lockstep_comm_t comm, const void* input, void* output, size_t count,
                                          lockstep_type_t type, const lockstep_options_t* options,
                                          lockstep_plan_t* plan) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    lockstep_plan_t& result = required(plan, "plan");
    result = new lockstep_plan{
        communicator.plan_all_gather(input, output, count, to_type(type), to_options(options))};
  });
}
lockstep_error_t lockstep_plan_reduce_scatter(lockstep_comm_t comm, const void* input, void* output,
                                              size_t count, lockstep_type_t type, lockstep_op_t op,
                                              const lockstep_options_t* options, lockstep_plan_t* plan) {
  return guarded([&] {
    auto& communicator = required(comm, "comm").communicator;
    lockstep_plan_t& result = required(plan, "plan");
    result = new lockstep_plan{communicator.plan_reduce_scatter(input, output, count, to_type(type),
                                                                to_op(op), to_options(options))};
  });
}
lockstep_error_t lockstep_plan_start(lockstep_plan_t plan, lockstep_work_t* work) {
  return guarded([&] {
    if (work == nullptr) {
      required(plan, "plan").plan.run();
    } else {
      hand_out(required(plan, "plan").plan.start(), work);
    }
  });
}
void lockstep_plan_free(lockstep_plan_t plan) { delete plan; }

// ---- works ----

lockstep_error_t lockstep_work_wait(lockstep_work_t work) {
  return guarded([&] { required(work, "work").work.wait(); });
}
lockstep_error_t lockstep_work_wait_for(lockstep_work_t work, int64_t limit_us, int* done) {
  return guarded([&] {
    int& result = required(done, "done");
    result = required(work, "work").work.wait_for(std::chrono::microseconds(limit_us)) ? 1 : 0;
  });
}
lockstep_error_t lockstep_work_test(lockstep_work_t work, int* done) {
  return guarded([&] { required(done, "done") = required(work, "work").work.test() ? 1 : 0; });
}
lockstep_error_t lockstep_work_status(lockstep_work_t work, int* from, int* tag, size_t* count) {
  return guarded([&] {
    const lockstep::RecvStatus status = required(work, "work").work.status();
    if (from != nullptr) *from = status.source;
    if (tag != nullptr) *tag = status.tag;
    if (count != nullptr) *count = status.count;
  });
}
void lockstep_work_free(lockstep_work_t work) { delete work; }

}  // extern "C"
