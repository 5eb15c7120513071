// DeviceReducer: averages gradients in device memory over all ranks while backward runs, in the order of
// streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/parameter.hpp"
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
  DeviceCompression compression = DeviceCompression::none;
  std::size_t block = 256;  ///< Elements that share a scale; a multiple of 4, at most 65536.
};

/// As Reducer (reducer.hpp), for gradients in device memory: no call waits for the device. Gradients are
/// views into buckets; a full bucket is all_reduced on a stream of the reducer's own, of high priority, as
/// soon as the streams that computed it get there, while the others go on.
///
/// Thread safety: gradient() and mark_ready() from any thread while backward is being enqueued; everything
/// else from one thread at a time, and while no other thread is in a call.
///
/// Errors: those of use (a gradient marked twice, or never) throw here and abort the communicator, because
/// its peers wait for this rank's gradients; a failed collective throws from the next call, or from
/// DeviceCommunicator::wait().
class LOCKSTEP_API DeviceReducer {
 public:
  /// Collective. `control` (of the same ranks) compares names, shapes, types and options of all ranks, as
  /// Reducer's constructor does, and is not used afterwards; then every rank's values, in device memory,
  /// become rank 0's. Waits until that is done. `communicator` must outlive the reducer.
  DeviceReducer(Communicator& control, DeviceCommunicator& communicator,
                std::span<const Parameter> parameters, const DeviceReducerOptions& options = {});
  /// Local. Waits until the device has passed what uses the buckets. In the midst of a step it aborts the
  /// communicator.
  ~DeviceReducer();
  DeviceReducer(DeviceReducer&&) noexcept;

  /// Where gradient i lives, in device memory: aligned to BucketPlan::kAlignment, zero at first, valid for
  /// the reducer's life. Throws on a bad index.
  void* gradient(std::size_t parameter) const;

  /// Gradient i is complete with what was enqueued to `stream` so far; until wait() nothing else touches it.
  /// The last gradient of a bucket lets its all_reduce start, in plan order on all ranks.
  void mark_ready(std::size_t parameter, Stream stream);

  /// Ends the step: what is enqueued to `stream` from now on finds all gradients averaged. Returns at once.
  void wait(Stream stream);

  const BucketPlan& plan() const noexcept;
  /// Bytes that this rank has sent to each peer's place so far: what compression saves shows here.
  std::uint64_t bytes_on_wire() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
