// DeviceCommunicator: collectives on the memory of GPUs, in the order of streams.
//
// Conventions of every call, beyond those of Communicator (communicator.hpp):
// - A call enqueues and returns before the operation is complete, in every mode. It runs after everything
//   that was in `stream` before, and what is enqueued to `stream` later runs after it. Operations of one
//   communicator run in the order of the calls, whatever streams they name.
// - Buffers are device memory of this communicator's device (or pinned host memory that the device can
//   address). They belong to the operation until the stream has passed it.
// - Wrong arguments throw Error at once. Of a collective the peers are told, which ends the communicator. Of
//   a send or receive they are not, as with Communicator: nothing has happened, the call can be made again,
//   and the peer waits for that, an abort or its deadline. What fails later ends the operation: the stream
//   drains, the contents of its output are undefined, state() tells, and every later call throws the same
//   Error. No stream stays blocked: every wait ends by result, abort or deadline.
// - After an operation ended, with success or an error, no byte of the caller's memory is touched any more. A
//   peer's kernel that is writing there is waited for, for a minute at most; where that was not enough the
//   error says that it may still write.
// - Thread safety: every member may be called from any thread; threads that start operations on one
//   communicator must agree on the order across ranks themselves.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/communicator.hpp"
#include "lockstep/error.hpp"
#include "lockstep/export.hpp"
#include "lockstep/types.hpp"

namespace lockstep {

namespace internal {
class DeviceCore;
}  // namespace internal

/// A cudaStream_t; nullptr is the legacy default stream.
using Stream = void*;

/// How the ranks' streams wait for one another; docs/gpu.md tells when each is right. All ranks use the same;
/// from the most careful to the fastest.
///
/// Capture in a graph: on one host, in device_sync, and in stream_sync that is asked for where every rank's
/// kernels run at the same time (no GPU shared without MPS); messages of up to 32 ranks. Elsewhere, and for a
/// batch of messages that names several streams, a stream that is being captured is refused with an error
/// that says so, on this rank alone: nothing has happened. All ranks capture the same calls, and replay in
/// the same order among their replays and calls; these must not overlap on one rank: use one stream, or
/// events. A replay that fails shows in state(), which looks for it. Replays end before the communicator is
/// destroyed.
enum class DeviceMode : std::uint8_t {
  host_sync = 0,    ///< A thread of each rank does: no kernel and no stream waits for another process.
  stream_sync = 1,  ///< Streams do, by stream memory operations: also for ranks that share one GPU.
  device_sync = 2,  ///< Kernels do, by flags in device memory: for ranks that run at the same time (a GPU
                    ///< each, or MPS).
};
/// "host_sync" ...
LOCKSTEP_API std::string_view name_of(DeviceMode mode) noexcept;

struct DeviceOptions {
  /// Unset: LOCKSTEP_DEVICE_MODE, else the mode that is right for the devices of all ranks. A mode that these
  /// cannot run is an error on all ranks.
  std::optional<DeviceMode> mode;
  std::chrono::milliseconds timeout{60'000};  ///< For all ranks to set up.
};

/// Options of one call; the defaults are right for almost everyone. `priority` and `user_op` have no meaning
/// on a device: ReduceOp::user is refused.
struct DeviceCallOptions : CallOptions {
  /// ReduceOp::premul_sum: this rank's factor, one element of the call's type in device memory, read in the
  /// order of the stream. Null: CallOptions::scale.
  const void* device_scale = nullptr;
};

class DeviceBatch;

/// The ranks of a Communicator with one device each; several ranks may share a device. Movable, not copyable.
/// Destruction is local and waits for no rank: collectives under way end as by abort(), here and on the
/// peers, and the own streams have passed them when it returns. Call finalize() for an orderly end.
class LOCKSTEP_API DeviceCommunicator {
 public:
  /// Collective over `communicator`, which is used for the set-up only and may serve other calls and be
  /// destroyed afterwards. Blocks until all ranks are there. Every rank names its own `device` (the CUDA
  /// ordinal in this process). Throws Error(not_supported) naming the cause where there is no device.
  DeviceCommunicator(Communicator& communicator, int device, const DeviceOptions& options = {});
  DeviceCommunicator(DeviceCommunicator&&) noexcept;
  DeviceCommunicator& operator=(DeviceCommunicator&&) noexcept;
  ~DeviceCommunicator();

  int rank() const noexcept;
  int size() const noexcept;
  int device() const noexcept;
  DeviceMode mode() const noexcept;
  /// The ranks are processes that share one GPU without MPS: it works for one of them at a time, and what any
  /// has it do behind a wait, an event that tells the time included, costs a turn (docs/gpu.md).
  bool takes_turns() const noexcept;
  /// One line: "rank 1 of 4 on device 0 (NVIDIA H200), mode stream_sync (ranks 0 and 1 share a GPU without
  /// MPS)".
  std::string describe() const;

  // ---- collectives: arguments as of the Communicator's call of the same name

  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  Stream stream, const DeviceCallOptions& options = {});
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              Stream stream, const DeviceCallOptions& options = {});
  /// Root's `input` is copied to every rank's `output`; in place: input == output. `input` is ignored
  /// elsewhere.
  void broadcast(const void* input, void* output, std::size_t count, DataType type, int root, Stream stream,
                 const DeviceCallOptions& options = {});
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root, Stream stream,
               const DeviceCallOptions& options = {});
  void gather(const void* input, void* output, std::size_t count, DataType type, int root, Stream stream,
              const DeviceCallOptions& options = {});
  void all_gather(const void* input, void* output, std::size_t count, DataType type, Stream stream,
                  const DeviceCallOptions& options = {});
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      Stream stream, const DeviceCallOptions& options = {});
  void all_to_all(const void* input, void* output, std::size_t count, DataType type, Stream stream,
                  const DeviceCallOptions& options = {});
  /// What is enqueued to `stream` later runs when every rank's stream has come to its barrier.
  void barrier(Stream stream, const DeviceCallOptions& options = {});

  void scatter_v(const void* input, std::span<const std::size_t> counts, void* output,
                 std::size_t output_count, DataType type, int root, Stream stream,
                 const DeviceCallOptions& options = {});
  void gather_v(const void* input, std::size_t input_count, void* output, std::span<const std::size_t> counts,
                DataType type, int root, Stream stream, const DeviceCallOptions& options = {});
  void all_gather_v(const void* input, void* output, std::span<const std::size_t> counts, DataType type,
                    Stream stream, const DeviceCallOptions& options = {});
  void reduce_scatter_v(const void* input, void* output, std::span<const std::size_t> counts, DataType type,
                        ReduceOp op, Stream stream, const DeviceCallOptions& options = {});
  void all_to_all_v(const void* input, std::span<const std::size_t> send_counts, void* output,
                    std::span<const std::size_t> recv_counts, DataType type, Stream stream,
                    const DeviceCallOptions& options = {});

  // ---- point to point: no tags; messages between two ranks arrive in order, and the receiver's bytes must
  // equal the sender's (ErrorCode::mismatch names both). Two ranks that send to each other and receive next
  // wait for ever (until the deadline): put such calls into a batch.

  void send(const void* buffer, std::size_t count, DataType type, int destination, Stream stream,
            const DeviceCallOptions& options = {});
  void recv(void* buffer, std::size_t count, DataType type, int source, Stream stream,
            const DeviceCallOptions& options = {});
  /// Sends and receives that start together: see DeviceBatch.
  DeviceBatch batch();

  // ---- memory

  /// Local: peers may read and write [pointer, pointer + bytes) of device memory while an operation uses it,
  /// so that its data pass without staging. Register the same buffers on all ranks for the gain. Memory that
  /// cannot be exported stays valid for every call, and is_registered() of it false: its data are staged.
  /// Buffers may overlap, and one be registered again, larger or not: each is deregistered for itself.
  void register_buffer(void* pointer, std::size_t bytes);
  /// Collective and blocking: register_buffer on all ranks, or, where one of them is refused, an error on all
  /// and no registration. host_sync finds out in each call which ranks' buffers are registered; the other
  /// modes cannot ask, and pass data without staging only where `same_places`, equal on all ranks, promises
  /// this: in every collective all ranks name buffers at the same places of their windows, or none does
  /// (in place or not; what only a root has does not count). Another place is ErrorCode::mismatch.
  void register_window(void* pointer, std::size_t bytes, bool same_places = false);
  /// Undoes one of either that begins there, a window with the last. No operation may be using the memory,
  /// and no graph. Local.
  void deregister(void* pointer);
  bool is_registered(const void* pointer, std::size_t bytes) const noexcept;

  // ---- life

  /// Blocks until every operation started so far ended here. Throws the Error of a failure.
  void wait();
  /// ok while usable; otherwise why it was revoked. Looks at what peers have told meanwhile; while calls are
  /// under way, when their streams were looked at once more, for which it waits a second at most.
  ErrorCode state() const noexcept;
  /// The text of that failure, as Error::what(); empty while ok.
  std::string error_text() const;
  /// Ends every pending and future operation with ErrorCode::aborted and tells the peers: all streams drain.
  /// Local, idempotent, returns at once, callable from any thread.
  void abort(std::string_view reason = "abort() was called");
  /// Orderly end: waits for the operations of this rank, then for all ranks. Later calls are errors. Throws
  /// the Error of an earlier failure.
  void finalize();

  /// For the library's own layers. share(): another handle of the same, for a layer that keeps it alive.
  internal::DeviceCore& core() const noexcept { return *core_; }
  DeviceCommunicator share() const noexcept { return DeviceCommunicator(core_); }
  explicit DeviceCommunicator(std::shared_ptr<internal::DeviceCore> core) noexcept;

 private:
  std::shared_ptr<internal::DeviceCore> core_;
};

/// Sends and receives that start together and never wait for one another, whatever their order on the peers;
/// messages between two ranks still arrive in order. Where kernels carry messages a batch has up to 192 of
/// them (not_supported above). A send to the own rank meets the receive from it in the
/// same batch. Not thread-safe. Movable; dropped without submit() it does nothing.
class LOCKSTEP_API DeviceBatch {
 public:
  DeviceBatch(DeviceBatch&&) noexcept;
  DeviceBatch& operator=(DeviceBatch&&) noexcept;
  ~DeviceBatch();
  /// Checked at once, as DeviceCommunicator::send and recv are.
  void send(const void* buffer, std::size_t count, DataType type, int destination, Stream stream);
  void recv(void* buffer, std::size_t count, DataType type, int source, Stream stream);
  /// Enqueues all: they run after what is in any of their streams, and all of these streams go on when all
  /// are done. The batch is empty afterwards.
  void submit(const DeviceCallOptions& options = {});

 private:
  friend class DeviceCommunicator;
  struct State;
  explicit DeviceBatch(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// Device memory that other processes on this host can map, whatever this takes on the machine: whole blocks
/// of 2 MiB, so allocate much at once. Not zeroed. Throws Error(out_of_memory), or Error(not_supported) where
/// there is no device. Thread-safe.
[[nodiscard]] LOCKSTEP_API void* allocate_device(std::size_t bytes, int device);
/// Frees memory of allocate_device() when the device has passed what uses it, for which it waits; while calls
/// are under way on the device, when these have ended, for which it does not. nullptr is ignored, any other
/// pointer throws Error(invalid_argument), or Error(not_supported) where there is no device. Thread-safe.
LOCKSTEP_API void free_device(void* pointer);

}  // namespace lockstep
