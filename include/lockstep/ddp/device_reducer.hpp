// DeviceReducer: averages gradients in device memory over all ranks while backward runs, in the order of
// streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/reducer_options.hpp"
#include "lockstep/ddp/statistics.hpp"
#include "lockstep/device.hpp"
#include "lockstep/export.hpp"

namespace lockstep {

/// How gradients of f32 travel; those of other types travel as they are. With one rank nothing is changed.
enum class DeviceCompression : std::uint8_t {
  none,
  bf16,    ///< Half the bytes, as make_half_hook(DataType::bf16).
  f16,     ///< Half the bytes, as make_half_hook(DataType::f16).
  f8e4m3,  ///< A quarter of the bytes, as make_quantised_hook() without error feedback: one scale a block.
  f8e5m2,
  i8,
};

/// Equal on all ranks: the constructor compares.
struct DeviceReducerOptions {
  std::size_t bucket_bytes = 25u << 20;       ///< Cap of a bucket.
  std::size_t first_bucket_bytes = 1u << 20;  ///< Cap of the first: communication starts early.
  bool average = true;                        ///< Divide by the world size; false sums.
  // As in ReducerOptions:
  bool weighted = false;
  bool find_unused = false;
  bool static_graph = false;
  UnevenInputs uneven = UnevenInputs::shadow;
  /// Keep a copy of what a step changes, so that errors of use and NonFiniteGradient leave every gradient as
  /// it was: as much device memory again as the gradients, and a copy of each bucket before it travels. May
  /// differ between ranks.
  bool undo = false;
  /// As ReducerOptions::check_first: the same guarantee without the memory, and without the overlap with
  /// backward.
  bool check_first = false;
  /// Elements that are not finite are taken for zero, and wait() throws NonFiniteGradient on every rank. For
  /// this wait() waits for the device.
  bool check_finite = false;
  /// Called at the end of the wait() that moved the gradients: gradient(i) then tells their new places, with
  /// the averages. Where every rank sets it the buckets are laid out anew, once, in the order in which
  /// gradients became ready in the first step; that wait() waits for the device.
  std::function<void()> gradients_moved = nullptr;
  /// Every so many steps wait() compares the values of all ranks, by hashes that kernels compute; 0 = never.
  /// In these steps wait() waits for the device.
  std::uint64_t check_replicas_every = 0;
  DeviceCompression compression = DeviceCompression::none;
  std::size_t block = 256;  ///< Elements that share a scale; a multiple of 4, at most 65536.
};

/// As Reducer (reducer.hpp), for gradients in device memory: no call waits for the device, but wait() with
/// check_finite and check_replicas_every. Gradients are views into buckets (Parameter::gradient is null:
/// memory that nothing reads is refused); a full bucket is all_reduced on a stream of the reducer's own, of
/// high priority, as soon as the streams that computed it get there, while the others go on.
///
/// The buckets are a window (DeviceCommunicator::register_window): what docs/gpu.md says under "While a call
/// on a window is made" holds for marks and wait(), and a collective of the caller's on gradients names the
/// same ones on all ranks.
///
/// Thread safety: gradient() and mark_ready() from any thread while backward is being enqueued; everything
/// else from one thread at a time, and while no other thread is in a call.
///
/// Errors of use (a gradient marked twice, or never) fail the step on every rank, as those of a Reducer:
/// wait() throws the same Error(invalid_argument) everywhere, and the next step may begin. Gradients are then
/// undefined, or with DeviceReducerOptions::undo or check_first as they were, to the last bit. A failed
/// collective throws from wait(), this one or the next, or from DeviceCommunicator::wait(), and leaves them
/// undefined.
class LOCKSTEP_API DeviceReducer {
  struct State;

 public:
  /// Collective. `control` (of the same ranks) compares names, shapes, types and options of all ranks, as
  /// Reducer's constructor does, and is split once for the few bytes with which wait() judges a step; it is
  /// not used afterwards. Then every rank's values, in device memory, become rank 0's. Waits until that is
  /// done. The values must outlive the reducer. It keeps the group alive: the handles may be moved or go
  /// first.
  DeviceReducer(Communicator& control, DeviceCommunicator& communicator,
                std::span<const Parameter> parameters, const DeviceReducerOptions& options = {});
  /// Local. Waits until the device has passed what uses the buckets. In the midst of a step it aborts the
  /// communicator.
  ~DeviceReducer();
  DeviceReducer(DeviceReducer&&) noexcept;

  /// Where gradient i lives, in device memory: aligned to BucketPlan::kAlignment, zero at first, valid for
  /// the reducer's life, or until DeviceReducerOptions::gradients_moved is called. Throws on a bad index.
  void* gradient(std::size_t parameter) const;

  /// Gradient i is complete with what was enqueued to `stream` so far; until wait() nothing else touches it.
  /// With static_graph this counts for the last of its marks. Marks of frozen parameters are ignored.
  /// The last gradient of a bucket lets its all_reduce start, in plan order on all ranks.
  void mark_ready(std::size_t parameter, Stream stream);

  /// Gradient i will not be computed in this step, as Reducer::mark_unused(); it was last used by what was
  /// enqueued to `stream` so far.
  void mark_unused(std::size_t parameter, Stream stream);

  /// Ends the step: what is enqueued to `stream` from now on finds all gradients averaged. Returns when all
  /// ranks have come here, whether or not their devices have: then they know that every rank's step is good.
  void wait(Stream stream);

  // ---- modes: see the Reducer's of the same names

  class LOCKSTEP_API NoSync {
   public:
    explicit NoSync(DeviceReducer& reducer);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    State& state_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// The gradients were last used by what was enqueued to `stream` so far.
  bool begin_step(std::uint64_t samples, Stream stream);

  /// The gradients were last used by what was enqueued to `stream` so far. Waits for the device.
  void freeze(std::span<const std::size_t> parameters, Stream stream);

  /// Waits for the device. Where DeviceReducerOptions::gradients_moved allows it the next step is observed
  /// and the buckets are laid out anew.
  void add_parameters(std::span<const Parameter> added);

  bool used(std::size_t parameter) const;

  /// Enqueued to `stream`, between wait() and the optimizer's step, without communication: scales all
  /// gradients by max_norm / norm when their global L2 norm is above max_norm, with equal bits on all ranks.
  /// `norm`, in memory that the device reaches, gets the norm before; null: nobody does.
  void clip_gradients(double max_norm, Stream stream, double* norm = nullptr);

  // ---- what happened

  const BucketPlan& plan() const noexcept;
  /// Steps ended so far.
  std::uint64_t steps() const noexcept;
  /// Of the last step that was measured and that the device has passed, by the device's clock: its streams
  /// are asked, never waited for, so steps are left out where the host is more than one step ahead, and
  /// fifteen of sixteen where the ranks take turns on one GPU. `waited` is what wait()'s stream waited for
  /// communication. `latest_rank` and `waited_for_latest` are by the hosts' clocks: whose host came to wait()
  /// last.
  StepStatistics statistics() const;
  /// As Reducer::report().
  std::string report() const;
  /// Device memory of the copies that DeviceReducerOptions::undo asks for.
  std::size_t undo_bytes() const noexcept;
  /// Bytes that this rank has sent to each peer's place so far: what compression saves shows here.
  std::uint64_t bytes_on_wire() const noexcept;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
