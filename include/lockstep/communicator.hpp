// Communicator: a group of ranks and the collectives among them.
//
// Conventions of every call:
// - Counts are in elements and 64 bits wide. `input` and `output` may be the same pointer where the call says
//   "in place"; partly overlapping buffers are an error. A buffer of zero elements may be null. Pointers are
//   aligned to the element size.
// - All ranks of the communicator call the same collectives in the same order with equal count, type,
//   operator and root. A difference is detected, named on all ranks (ErrorCode::mismatch), and revokes the
//   communicator. So do wrong arguments of a collective: invalid_argument on that rank, refused on the
//   others. A group of one stays usable.
// - The plain call blocks until the local result is there and throws Error. The `_async` call returns a Work
//   at once; the buffers belong to the library until the Work is done, and input may not be written, output
//   not touched meanwhile.
// - What a reduction gives has equal bits on all ranks that get it, and the same ones in every run: they
//   depend on the values, the count, the operator, the ranks and their hosts, the transports, the tuning and
//   CallOptions::algorithm, and not on which memory is used, its alignment, in place or not, the priority, or
//   whether the call is plain, async, in a batch or a plan. Only which NaN comes out is left open.
// - After an operation returned, with success or an error, no byte of the caller's memory is touched any
//   more.
// - Thread safety: every member may be called from any thread; threads that start collectives on one
//   communicator must agree on the order across ranks themselves.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/error.hpp"
#include "lockstep/export.hpp"
#include "lockstep/types.hpp"
#include "lockstep/work.hpp"

namespace lockstep {

namespace internal {
class CommunicatorCore;
}  // namespace internal

/// How a process finds its group. Everything unset comes from the environment: LOCKSTEP_ variables, then
/// lockstep-run, torchrun, PMIx/Open MPI, PMI/MPICH, Slurm step variables, then plain
/// RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT. With none of them present the group has one rank. Two sources
/// of the environment that disagree are an error that names both.
struct InitOptions {
  std::optional<int> rank;
  std::optional<int> world_size;
  /// Where the ranks meet: "tcp://host:port", "file:///shared/path", "local://name" (ranks of one host),
  /// "memory://name" (threads of one process), or what Rendezvous::address() says.
  std::string rendezvous;
  std::string job_id;  ///< Keeps two jobs at one address apart; equal on all ranks.
  std::string secret;  ///< Per-job secret of the handshakes; equal on all ranks.
  /// For the whole start, until all ranks have arrived and can reach each other; 0 = however long it takes.
  /// Unset: LOCKSTEP_START_TIMEOUT (120 s). One look-up of a name at silent name servers may outlast it, and
  /// a start that fails tells the other ranks why for up to 2 s more, for 5 s where it serves the store.
  std::optional<std::chrono::milliseconds> timeout;
  /// As LOCKSTEP_TRANSPORTS, which counts where this is empty. Equal on all ranks.
  std::string transports;
};

/// A tag of receive that matches every tag, and a source that matches every rank.
inline constexpr int kAnyTag = -1;
inline constexpr int kAnySource = -1;

/// Options of one call; the defaults are right for almost everyone.
struct CallOptions {
  /// Deadline of the operation, from its start; 0 = none, below 0: it has passed. Unset: LOCKSTEP_TIMEOUT
  /// (30 minutes).
  std::optional<std::chrono::milliseconds> timeout;
  /// Above 0: urgent, on all ranks or on none (otherwise an ErrorCode::mismatch). Among several hosts, or
  /// over any links, urgent calls travel on links of their own, made at the first one, and have an order of
  /// their own: they overtake calls that started before and still run, which yield to them while they move.
  /// Where all ranks share memory calls stay in the order in which they started: there it has no effect, and
  /// a difference is not noticed. Among calls of one kind a higher number is stepped first; that is local.
  int priority = 0;
  std::string_view algorithm;  ///< A name listed by `lockstep-bench --list`; equal on all ranks. Empty:
                               ///< chosen by the library.
  double scale = 1.0;          ///< This rank's factor for ReduceOp::premul_sum. May differ between ranks.
  UserOp user_op;              ///< For ReduceOp::user; the same function on all ranks.
};

/// Where a received message came from.
struct RecvStatus {
  int source = -1;
  int tag = -1;
  std::size_t count = 0;  ///< Elements received; at most the count asked for.
};

class Plan;
class Batch;

/// A group of ranks. Movable, not copyable; what was moved from may be assigned to or destroyed, and nothing
/// else. Destruction is local and waits for no rank: collectives under way end as by abort(), here and on the
/// peers. Call finalize() for an orderly end. A child forked while one lives (a data loader) may drop its
/// copy, and the parent goes on; any other call there throws ErrorCode::not_supported.
class LOCKSTEP_API Communicator {
 public:
  /// Joins the group that `options` and the environment describe. Blocks until all ranks are there (or throws
  /// after options.timeout). May be called again, after the end of an earlier group or beside it: all ranks
  /// form their groups in one order. A process that was started anew belongs to a new job: it cannot join the
  /// later groups of the others. Throws configuration (settings that contradict each other), unauthorized
  /// (wrong secret or job), timeout (ranks that are missing), peer_lost (one that ended meanwhile),
  /// not_supported (a forked child), system, out_of_memory.
  static Communicator create(const InitOptions& options = {});

  /// `n` ranks (1 to 16384) in this process, for one thread each; element r is rank r. `transports` as in
  /// InitOptions.
  static std::vector<Communicator> local_group(int n, std::string_view transports = "auto");

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int rank() const noexcept;
  int size() const noexcept;
  /// One line: "rank 3 of 8 on host-2, transport shm+tcp, ranks from torchrun".
  std::string describe() const;

  /// New communicators of the ranks that gave the same `color` (>= 0), ordered by (key, rank). A negative
  /// color takes part and gets no communicator. Collective over this communicator; returns when all ranks
  /// have theirs, at most after three times LOCKSTEP_TIMEOUT. A rank that lacks what the new one needs ends
  /// this one, here and on the peers.
  std::optional<Communicator> split(int color, int key);

  // ---- collectives

  /// output[i] = op over ranks of input[i]; `count` elements each. In place: input == output.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  const CallOptions& options = {});
  [[nodiscard]] Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                      ReduceOp op, const CallOptions& options = {});

  /// As all_reduce, the result only at `root`; elsewhere `output` is ignored and may be null.
  void reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root,
              const CallOptions& options = {});
  [[nodiscard]] Work reduce_async(const void* input, void* output, std::size_t count, DataType type,
                                  ReduceOp op, int root, const CallOptions& options = {});

  /// Root's `buffer` is copied to every rank's `buffer`.
  void broadcast(void* buffer, std::size_t count, DataType type, int root, const CallOptions& options = {});
  [[nodiscard]] Work broadcast_async(void* buffer, std::size_t count, DataType type, int root,
                                     const CallOptions& options = {});

  /// Rank r gets input[r*count ..) of root in output; `input` is ignored elsewhere. In place at root: output
  /// == input + root*count.
  void scatter(const void* input, void* output, std::size_t count, DataType type, int root,
               const CallOptions& options = {});
  [[nodiscard]] Work scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                   int root, const CallOptions& options = {});

  /// Root gets rank r's `count` elements at output[r*count ..). In place at root: input == output +
  /// root*count.
  void gather(const void* input, void* output, std::size_t count, DataType type, int root,
              const CallOptions& options = {});
  [[nodiscard]] Work gather_async(const void* input, void* output, std::size_t count, DataType type, int root,
                                  const CallOptions& options = {});

  /// As gather, at every rank. In place: input == output + rank()*count.
  void all_gather(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {});
  [[nodiscard]] Work all_gather_async(const void* input, void* output, std::size_t count, DataType type,
                                      const CallOptions& options = {});

  /// `input` has size()*count elements; rank r gets the reduction of input[r*count ..) in output. In place:
  /// output == input + rank()*count.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                      const CallOptions& options = {});
  [[nodiscard]] Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                                          ReduceOp op, const CallOptions& options = {});

  /// `input` and `output` have size()*count elements; block r of input goes to rank r, block r of output
  /// comes from rank r. Not in place.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type,
                  const CallOptions& options = {});
  [[nodiscard]] Work all_to_all_async(const void* input, void* output, std::size_t count, DataType type,
                                      const CallOptions& options = {});

  /// Returns when every rank has called it.
  void barrier(const CallOptions& options = {});
  [[nodiscard]] Work barrier_async(const CallOptions& options = {});

  // ---- v-variants: counts differ by rank; blocks lie one after the other in rank order

  /// `counts[r]` elements for rank r; read at root only (elsewhere may be empty). `output` takes
  /// `output_count` elements, which must equal counts[rank] at root. In place at root: output == this rank's
  /// block of input.
  void scatter_v(const void* input, std::span<const std::size_t> counts, void* output,
                 std::size_t output_count, DataType type, int root, const CallOptions& options = {});
  [[nodiscard]] Work scatter_v_async(const void* input, std::span<const std::size_t> counts, void* output,
                                     std::size_t output_count, DataType type, int root,
                                     const CallOptions& options = {});

  /// Mirror of scatter_v.
  void gather_v(const void* input, std::size_t input_count, void* output, std::span<const std::size_t> counts,
                DataType type, int root, const CallOptions& options = {});
  [[nodiscard]] Work gather_v_async(const void* input, std::size_t input_count, void* output,
                                    std::span<const std::size_t> counts, DataType type, int root,
                                    const CallOptions& options = {});

  /// `counts` has size() entries, equal on all ranks; input has counts[rank()] elements. In place: input ==
  /// own block of output.
  void all_gather_v(const void* input, void* output, std::span<const std::size_t> counts, DataType type,
                    const CallOptions& options = {});
  [[nodiscard]] Work all_gather_v_async(const void* input, void* output, std::span<const std::size_t> counts,
                                        DataType type, const CallOptions& options = {});

  /// `counts` equal on all ranks; input has their sum, rank r gets counts[r] reduced elements. In place:
  /// output == own block of input.
  void reduce_scatter_v(const void* input, void* output, std::span<const std::size_t> counts, DataType type,
                        ReduceOp op, const CallOptions& options = {});
  [[nodiscard]] Work reduce_scatter_v_async(const void* input, void* output,
                                            std::span<const std::size_t> counts, DataType type, ReduceOp op,
                                            const CallOptions& options = {});

  /// Block r of input has send_counts[r] elements and goes to rank r; block r of output has recv_counts[r]
  /// and comes from rank r. The sender's count must equal the receiver's.
  void all_to_all_v(const void* input, std::span<const std::size_t> send_counts, void* output,
                    std::span<const std::size_t> recv_counts, DataType type, const CallOptions& options = {});
  [[nodiscard]] Work all_to_all_v_async(const void* input, std::span<const std::size_t> send_counts,
                                        void* output, std::span<const std::size_t> recv_counts, DataType type,
                                        const CallOptions& options = {});

  // ---- point to point
  //
  // Wrong arguments are an error of the call and nothing more: messages have no common order from which the
  // peers could know which of theirs is meant, so they wait on, and the call may be made again, rightly.

  /// Sends `count` elements to `destination` with `tag` (>= 0). Messages between two ranks with one tag
  /// arrive in order. A small message (up to 4 KiB), or one of any size to this rank itself, is buffered, and
  /// the call may return before the receive is posted; a large one waits for it. Up to 1024 messages may lie
  /// at a rank without a receive that takes them. When one more comes the receives that wait there, and none
  /// of the 1024 is for, end with ErrorCode::refused; one more to itself is refused.
  void send(const void* buffer, std::size_t count, DataType type, int destination, int tag = 0,
            const CallOptions& options = {});
  [[nodiscard]] Work send_async(const void* buffer, std::size_t count, DataType type, int destination,
                                int tag = 0, const CallOptions& options = {});

  /// Receives at most `count` elements from `source` (or kAnySource) with `tag` (or kAnyTag). A longer
  /// message (invalid_argument), or one of another type (mismatch), is an error that leaves the buffer
  /// unchanged, and is refused at a sender that still waits. The communicator stays usable.
  RecvStatus recv(void* buffer, std::size_t count, DataType type, int source, int tag = 0,
                  const CallOptions& options = {});
  [[nodiscard]] Work recv_async(void* buffer, std::size_t count, DataType type, int source, int tag = 0,
                                const CallOptions& options = {});

  /// Several operations started together: see Batch.
  Batch batch();

  /// A collective whose arguments are fixed: starting it again costs no set-up. See Plan.
  Plan plan_all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                       const CallOptions& options = {});
  Plan plan_broadcast(void* buffer, std::size_t count, DataType type, int root,
                      const CallOptions& options = {});
  Plan plan_all_gather(const void* input, void* output, std::size_t count, DataType type,
                       const CallOptions& options = {});
  Plan plan_reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                           const CallOptions& options = {});

  // ---- life

  /// Ends every pending and future operation of this communicator here with ErrorCode::aborted and tells the
  /// peers. Local, idempotent, returns at once, callable from any thread and from a UserOp. What is under
  /// way has ended once its Work says so, when no peer uses its memory any more: at most half a second later,
  /// or when the operator returns that another thread of this process is in.
  void abort(std::string_view reason = "abort() was called");

  /// Orderly end: waits for the collectives under way and for all ranks (a barrier), then tells them that
  /// this rank leaves. Later calls, another finalize() among them, throw ErrorCode::aborted, which is then
  /// also state().
  void finalize();

  /// ok while usable; otherwise why it was revoked.
  ErrorCode state() const noexcept;

  /// For the library's own layers.
  internal::CommunicatorCore& core() const noexcept { return *core_; }
  explicit Communicator(std::shared_ptr<internal::CommunicatorCore> core) noexcept;

 private:
  std::shared_ptr<internal::CommunicatorCore> core_;
};

/// Operations that start together and end together. send/recv posted in one batch never wait for one another,
/// whatever the order on the peer. Consecutive all_reduces of equal type, operator and algorithm, all urgent
/// or none, travel as one operation (fused through a scratch buffer) when together they are at most 64 KiB,
/// with the earliest of their deadlines; all ranks fuse alike. A wrong send or recv throws where it is added;
/// wrong arguments of a collective end the Work of submit() and are told to the peers, as those of a call.
/// Buffers belong to the library from submit() until the Work is done. Like a Plan it keeps the group alive.
/// Not thread-safe. Movable; dropped without submit() it does nothing.
class LOCKSTEP_API Batch {
 public:
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;
  ~Batch();
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                  const CallOptions& options = {});
  void broadcast(void* buffer, std::size_t count, DataType type, int root, const CallOptions& options = {});
  void send(const void* buffer, std::size_t count, DataType type, int destination, int tag = 0,
            const CallOptions& options = {});
  void recv(void* buffer, std::size_t count, DataType type, int source, int tag = 0,
            const CallOptions& options = {});
  /// Starts everything; the batch is empty afterwards.
  [[nodiscard]] Work submit();

 private:
  friend class Communicator;
  struct State;
  explicit Batch(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

/// A persistent collective. start() takes the next sequence number of the communicator, as a call would;
/// start it again when the last start has ended, which is not checked. Wrong arguments are told by start(),
/// as by a call. Buffers must live as long as the plan is used. It keeps the group alive, without its
/// Communicator too. Not thread-safe. Movable.
class LOCKSTEP_API Plan {
 public:
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;
  ~Plan();
  [[nodiscard]] Work start();
  void run();  ///< start() and wait(), on the short path.

 private:
  friend class Communicator;
  struct State;
  explicit Plan(std::unique_ptr<State> state) noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
