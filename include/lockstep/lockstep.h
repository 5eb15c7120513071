/* lockstep for C and every language that can call C.
 *
 * Every function returns a lockstep_error_t (0 = ok) unless it says otherwise; lockstep_last_error() then has
 * the text of the last failure of the calling thread. No exception crosses this interface. Conventions of
 * counts, buffers, in-place use, ownership and thread safety are those of <lockstep/communicator.hpp>.
 * Handles are opaque; NULL handles are refused with LOCKSTEP_INVALID_ARGUMENT, and ignored where they are
 * freed.
 *
 * Collectives come in one form with a `work` argument: NULL blocks until the local result is there; otherwise
 * the call returns at once and *work must be given to lockstep_work_free() after use. `options` may be NULL.
 */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_C_API __attribute__((visibility("default")))

/* Codes of lockstep::ErrorCode. */
typedef enum {
  LOCKSTEP_OK = 0,
  LOCKSTEP_INVALID_ARGUMENT = 1,
  LOCKSTEP_MISMATCH = 2,
  LOCKSTEP_PEER_LOST = 3,
  LOCKSTEP_TIMEOUT = 4,
  LOCKSTEP_ABORTED = 5,
  LOCKSTEP_REFUSED = 6,
  LOCKSTEP_SYSTEM = 7,
  LOCKSTEP_OUT_OF_MEMORY = 8,
  LOCKSTEP_NOT_SUPPORTED = 9,
  LOCKSTEP_CONFIGURATION = 10,
  LOCKSTEP_UNAUTHORIZED = 11,
  LOCKSTEP_INTERNAL = 12,
  LOCKSTEP_DEVICE_FAILED = 13
} lockstep_error_t;

/* A number that is no enumerator is refused, so it must be allowed to come: C++ fixes the type that C gives
 * these. */
#ifdef __cplusplus
#define LOCKSTEP_ANY_NUMBER : unsigned
#else
#define LOCKSTEP_ANY_NUMBER
#endif

/* Values of lockstep::DataType. */
typedef enum LOCKSTEP_ANY_NUMBER {
  LOCKSTEP_F16 = 0,
  LOCKSTEP_BF16 = 1,
  LOCKSTEP_F32 = 2,
  LOCKSTEP_F64 = 3,
  LOCKSTEP_I8 = 4,
  LOCKSTEP_U8 = 5,
  LOCKSTEP_I32 = 6,
  LOCKSTEP_U32 = 7,
  LOCKSTEP_I64 = 8,
  LOCKSTEP_U64 = 9,
  LOCKSTEP_BOOL = 10,
  LOCKSTEP_COMPLEX64 = 11,
  LOCKSTEP_COMPLEX128 = 12,
  LOCKSTEP_F8E4M3 = 13,
  LOCKSTEP_F8E5M2 = 14
} lockstep_type_t;

/* Values of lockstep::ReduceOp. */
typedef enum LOCKSTEP_ANY_NUMBER {
  LOCKSTEP_SUM = 0,
  LOCKSTEP_PROD = 1,
  LOCKSTEP_MIN = 2,
  LOCKSTEP_MAX = 3,
  LOCKSTEP_AVG = 4,
  LOCKSTEP_BAND = 5,
  LOCKSTEP_BOR = 6,
  LOCKSTEP_BXOR = 7,
  LOCKSTEP_PREMUL_SUM = 8,
  LOCKSTEP_USER = 9
} lockstep_op_t;

#define LOCKSTEP_ANY_SOURCE (-1)
#define LOCKSTEP_ANY_TAG (-1)

typedef struct lockstep_comm* lockstep_comm_t;
typedef struct lockstep_rendezvous* lockstep_rendezvous_t;
typedef struct lockstep_work* lockstep_work_t;
typedef struct lockstep_plan* lockstep_plan_t;
typedef struct lockstep_batch* lockstep_batch_t;
typedef struct lockstep_reducer* lockstep_reducer_t;

/* How to find the group; a zeroed struct takes everything from the environment. */
typedef struct {
  int has_rank, rank; /* rank and world_size count only when has_rank != 0 */
  int world_size;
  const char* rendezvous; /* as lockstep::InitOptions says; NULL: from the environment */
  const char* job_id;
  const char* secret;
  int64_t timeout_ms;     /* 0: LOCKSTEP_START_TIMEOUT (120 s); -1: none; below -1: it has passed */
  const char* transports; /* as LOCKSTEP_TRANSPORTS; NULL: from the environment */
} lockstep_init_t;

/* Options of one call; start from LOCKSTEP_OPTIONS_INIT. */
typedef struct {
  int64_t timeout_ms; /* -1: LOCKSTEP_TIMEOUT; 0: none; below -1: it has passed */
  int priority;
  const char* algorithm;                                                     /* NULL: chosen by the library */
  double scale;                                                              /* premul_sum */
  void (*combine)(const void* in, void* inout, size_t count, void* context); /* user; may not throw */
  void* context;
} lockstep_options_t;
#define LOCKSTEP_OPTIONS_INIT \
  { -1, 0, NULL, 1.0, NULL, NULL }

/* Text of the last failure of this thread; "" if none. Valid until the thread's next call. Never NULL. */
LOCKSTEP_C_API const char* lockstep_last_error(void);
/* The rank that caused it, or -1. */
LOCKSTEP_C_API int lockstep_last_culprit(void);
/* "1.2.3" */
LOCKSTEP_C_API const char* lockstep_version(void);
/* Bytes of one element; 0 of what is no type. */
LOCKSTEP_C_API size_t lockstep_type_size(lockstep_type_t type);

/* Memory that every transport uses without copying; see <lockstep/memory.hpp>. */
LOCKSTEP_C_API lockstep_error_t lockstep_allocate(size_t bytes, void** pointer);
LOCKSTEP_C_API void lockstep_free(void* pointer);
LOCKSTEP_C_API lockstep_error_t lockstep_register(void* pointer, size_t bytes);
LOCKSTEP_C_API lockstep_error_t lockstep_deregister(void* pointer);

/* A place where one group meets, served by this process, which need not be of the group; see
 * <lockstep/rendezvous.hpp>. The secret may not be empty. */
LOCKSTEP_C_API lockstep_error_t lockstep_rendezvous_create(const char* job_id, const char* secret,
                                                           lockstep_rendezvous_t* rendezvous);
/* For lockstep_init_t of every rank; valid until the handle is freed. NULL for a NULL handle. */
LOCKSTEP_C_API const char* lockstep_rendezvous_address(lockstep_rendezvous_t rendezvous);
/* The ranks are gone or finalized by then. */
LOCKSTEP_C_API void lockstep_rendezvous_free(lockstep_rendezvous_t rendezvous);

/* Groups. */
/* `init` may be NULL: as a zeroed one. */
LOCKSTEP_C_API lockstep_error_t lockstep_create(const lockstep_init_t* init, lockstep_comm_t* comm);
/* `n` ranks in this process; comms has room for n handles. transports as in lockstep_init_t. */
LOCKSTEP_C_API lockstep_error_t lockstep_local_group(int n, const char* transports, lockstep_comm_t* comms);
/* *part is NULL for a negative color. */
LOCKSTEP_C_API lockstep_error_t lockstep_split(lockstep_comm_t comm, int color, int key,
                                               lockstep_comm_t* part);
LOCKSTEP_C_API lockstep_error_t lockstep_finalize(lockstep_comm_t comm);
/* `reason` may be NULL. */
LOCKSTEP_C_API lockstep_error_t lockstep_abort(lockstep_comm_t comm, const char* reason);
LOCKSTEP_C_API void lockstep_comm_free(lockstep_comm_t comm);
LOCKSTEP_C_API int lockstep_rank(lockstep_comm_t comm); /* -1 for a NULL handle */
LOCKSTEP_C_API int lockstep_size(lockstep_comm_t comm); /* -1 for a NULL handle */
/* "rank 3 of 8 on host-2, ..."; valid until this thread's next call of it. NULL where it fails. */
LOCKSTEP_C_API const char* lockstep_describe(lockstep_comm_t comm);
/* LOCKSTEP_OK while usable; else why it ended, which lockstep_last_error() says in words. */
LOCKSTEP_C_API lockstep_error_t lockstep_state(lockstep_comm_t comm);

/* Collectives. */
LOCKSTEP_C_API lockstep_error_t lockstep_all_reduce(lockstep_comm_t comm, const void* input, void* output,
                                                    size_t count, lockstep_type_t type, lockstep_op_t op,
                                                    const lockstep_options_t* options, lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_reduce(lockstep_comm_t comm, const void* input, void* output,
                                                size_t count, lockstep_type_t type, lockstep_op_t op,
                                                int root, const lockstep_options_t* options,
                                                lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_broadcast(lockstep_comm_t comm, void* buffer, size_t count,
                                                   lockstep_type_t type, int root,
                                                   const lockstep_options_t* options, lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_scatter(lockstep_comm_t comm, const void* input, void* output,
                                                 size_t count, lockstep_type_t type, int root,
                                                 const lockstep_options_t* options, lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_gather(lockstep_comm_t comm, const void* input, void* output,
                                                size_t count, lockstep_type_t type, int root,
                                                const lockstep_options_t* options, lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_all_gather(lockstep_comm_t comm, const void* input, void* output,
                                                    size_t count, lockstep_type_t type,
                                                    const lockstep_options_t* options, lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_reduce_scatter(lockstep_comm_t comm, const void* input, void* output,
                                                        size_t count, lockstep_type_t type, lockstep_op_t op,
                                                        const lockstep_options_t* options,
                                                        lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_all_to_all(lockstep_comm_t comm, const void* input, void* output,
                                                    size_t count, lockstep_type_t type,
                                                    const lockstep_options_t* options, lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_barrier(lockstep_comm_t comm, const lockstep_options_t* options,
                                                 lockstep_work_t* work);

/* For a layer above that finds its own arguments of a collective wrong ("all_reduce", as errors call it): the
 * call takes its place in the order and is refused, so that the peers, which would wait, are told why.
 * Returns LOCKSTEP_INVALID_ARGUMENT, or why it could not. */
LOCKSTEP_C_API lockstep_error_t lockstep_refuse(lockstep_comm_t comm, const char* collective,
                                                const char* reason);

/* v-variants; arrays of counts have one entry per rank. */
LOCKSTEP_C_API lockstep_error_t lockstep_scatter_v(lockstep_comm_t comm, const void* input,
                                                   const size_t* counts, void* output, size_t output_count,
                                                   lockstep_type_t type, int root,
                                                   const lockstep_options_t* options, lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_gather_v(lockstep_comm_t comm, const void* input, size_t input_count,
                                                  void* output, const size_t* counts, lockstep_type_t type,
                                                  int root, const lockstep_options_t* options,
                                                  lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_all_gather_v(lockstep_comm_t comm, const void* input, void* output,
                                                      const size_t* counts, lockstep_type_t type,
                                                      const lockstep_options_t* options,
                                                      lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_reduce_scatter_v(lockstep_comm_t comm, const void* input,
                                                          void* output, const size_t* counts,
                                                          lockstep_type_t type, lockstep_op_t op,
                                                          const lockstep_options_t* options,
                                                          lockstep_work_t* work);
LOCKSTEP_C_API lockstep_error_t lockstep_all_to_all_v(lockstep_comm_t comm, const void* input,
                                                      const size_t* send_counts, void* output,
                                                      const size_t* recv_counts, lockstep_type_t type,
                                                      const lockstep_options_t* options,
                                                      lockstep_work_t* work);

/* Point to point. */
LOCKSTEP_C_API lockstep_error_t lockstep_send(lockstep_comm_t comm, const void* buffer, size_t count,
                                              lockstep_type_t type, int destination, int tag,
                                              const lockstep_options_t* options, lockstep_work_t* work);
/* from, received_tag and received may be NULL; with `work` they are read with lockstep_work_status(). */
LOCKSTEP_C_API lockstep_error_t lockstep_recv(lockstep_comm_t comm, void* buffer, size_t count,
                                              lockstep_type_t type, int source, int tag,
                                              const lockstep_options_t* options, int* from, int* received_tag,
                                              size_t* received, lockstep_work_t* work);

/* Operations that start together. submit empties the batch; the batch itself is freed with
 * lockstep_batch_free. */
LOCKSTEP_C_API lockstep_error_t lockstep_batch_create(lockstep_comm_t comm, lockstep_batch_t* batch);
LOCKSTEP_C_API lockstep_error_t lockstep_batch_all_reduce(lockstep_batch_t batch, const void* input,
                                                          void* output, size_t count, lockstep_type_t type,
                                                          lockstep_op_t op,
                                                          const lockstep_options_t* options);
LOCKSTEP_C_API lockstep_error_t lockstep_batch_broadcast(lockstep_batch_t batch, void* buffer, size_t count,
                                                         lockstep_type_t type, int root,
                                                         const lockstep_options_t* options);
LOCKSTEP_C_API lockstep_error_t lockstep_batch_send(lockstep_batch_t batch, const void* buffer, size_t count,
                                                    lockstep_type_t type, int destination, int tag,
                                                    const lockstep_options_t* options);
LOCKSTEP_C_API lockstep_error_t lockstep_batch_recv(lockstep_batch_t batch, void* buffer, size_t count,
                                                    lockstep_type_t type, int source, int tag,
                                                    const lockstep_options_t* options);
LOCKSTEP_C_API lockstep_error_t lockstep_batch_submit(lockstep_batch_t batch, lockstep_work_t* work);
LOCKSTEP_C_API void lockstep_batch_free(lockstep_batch_t batch);

/* Persistent collectives. */
LOCKSTEP_C_API lockstep_error_t lockstep_plan_all_reduce(lockstep_comm_t comm, const void* input,
                                                         void* output, size_t count, lockstep_type_t type,
                                                         lockstep_op_t op, const lockstep_options_t* options,
                                                         lockstep_plan_t* plan);
LOCKSTEP_C_API lockstep_error_t lockstep_plan_broadcast(lockstep_comm_t comm, void* buffer, size_t count,
                                                        lockstep_type_t type, int root,
                                                        const lockstep_options_t* options,
                                                        lockstep_plan_t* plan);
LOCKSTEP_C_API lockstep_error_t lockstep_plan_all_gather(lockstep_comm_t comm, const void* input,
                                                         void* output, size_t count, lockstep_type_t type,
                                                         const lockstep_options_t* options,
                                                         lockstep_plan_t* plan);
LOCKSTEP_C_API lockstep_error_t lockstep_plan_reduce_scatter(lockstep_comm_t comm, const void* input,
                                                             void* output, size_t count, lockstep_type_t type,
                                                             lockstep_op_t op,
                                                             const lockstep_options_t* options,
                                                             lockstep_plan_t* plan);
/* work NULL: runs to the end. */
LOCKSTEP_C_API lockstep_error_t lockstep_plan_start(lockstep_plan_t plan, lockstep_work_t* work);
LOCKSTEP_C_API void lockstep_plan_free(lockstep_plan_t plan);

/* Operations in flight. */
LOCKSTEP_C_API lockstep_error_t lockstep_work_wait(lockstep_work_t work);
/* *done is 0 when `limit_us` passed first: the operation goes on. An error leaves it as it was. */
LOCKSTEP_C_API lockstep_error_t lockstep_work_wait_for(lockstep_work_t work, int64_t limit_us, int* done);
/* *done is 1 when it ended, with or without error, which lockstep_work_wait() returns. */
LOCKSTEP_C_API lockstep_error_t lockstep_work_test(lockstep_work_t work, int* done);
/* Of a finished receive. Pointers may be NULL. */
LOCKSTEP_C_API lockstep_error_t lockstep_work_status(lockstep_work_t work, int* from, int* tag,
                                                     size_t* count);
/* Dropping an unfinished operation leaves it running. */
LOCKSTEP_C_API void lockstep_work_free(lockstep_work_t work);

/* Gradients, averaged over all ranks while backward runs. Contracts, errors and thread safety are those of
 * lockstep::Reducer in <lockstep/ddp/reducer.hpp>; parameters are numbered in the order of their array. */
typedef struct {
  const char* name; /* no other's; NULL: "parameter 3" */
  lockstep_type_t type;
  const size_t* shape; /* `dimensions` sizes; read only during the call */
  size_t dimensions;
  void* value;
  void* gradient; /* with own_gradients only; otherwise NULL, or it is refused */
} lockstep_parameter_t;

/* A zeroed struct asks for the defaults. */
typedef struct {
  size_t bucket_bytes, first_bucket_bytes; /* 0: the defaults */
  int own_gradients; /* gradients_as_views = false: they stay where the parameters say */
  int sum;           /* no average */
  int weighted, find_unused, static_graph, check_finite;
  int check_first; /* above 0: yes; below 0: no; 0: as lockstep::ReducerOptions says */
  int no_undo;     /* no copy of the gradients: a step that fails then leaves views undefined */
  uint64_t check_replicas_every;
  const char* hook;    /* as lockstep::hook_by_name takes it: "bf16"; NULL: none */
  int overlap_forward; /* lockstep_reducer_wait leaves gradients to lockstep_reducer_wait_gradients */
} lockstep_reducer_options_t;
/* For lockstep_reducer_wait_gradients. */
#define LOCKSTEP_ALL_GRADIENTS ((size_t)-1)

/* Collective. `options` may be NULL. */
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_create(lockstep_comm_t comm,
                                                        const lockstep_parameter_t* parameters, size_t count,
                                                        const lockstep_reducer_options_t* options,
                                                        lockstep_reducer_t* reducer);
/* In the midst of a step it aborts the communicator, which may have been freed before it. */
LOCKSTEP_C_API void lockstep_reducer_free(lockstep_reducer_t reducer);
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_gradient(lockstep_reducer_t reducer, size_t parameter,
                                                          void** gradient);
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_mark_ready(lockstep_reducer_t reducer, size_t parameter);
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_mark_unused(lockstep_reducer_t reducer, size_t parameter);
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_wait(lockstep_reducer_t reducer);
/* With overlap_forward, after lockstep_reducer_wait: before the gradient is read. */
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_wait_gradients(lockstep_reducer_t reducer, size_t parameter);
/* Collective; between steps. More parameters, numbered on from those before. */
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_add_parameters(lockstep_reducer_t reducer,
                                                                const lockstep_parameter_t* parameters,
                                                                size_t count);
/* on != 0: gradients stay on this rank until it is called with 0. */
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_no_sync(lockstep_reducer_t reducer, int on);
/* *goes_on is 0 when no rank has data left. */
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_begin_step(lockstep_reducer_t reducer, uint64_t samples,
                                                            int* goes_on);
/* `norm` may be NULL. */
LOCKSTEP_C_API lockstep_error_t lockstep_reducer_clip(lockstep_reducer_t reducer, double max_norm,
                                                      double* norm);
/* One sentence about the last step; valid until the next call with this handle. NULL for a NULL handle, and
 * "" where it fails. */
LOCKSTEP_C_API const char* lockstep_reducer_report(lockstep_reducer_t reducer);

#ifdef __cplusplus
}
#endif
#endif /* LOCKSTEP_LOCKSTEP_H */
