// CallRunner: how the caller's stream itself runs a collective, waiting for the peers' streams in the way of
// its mode.
#pragma once

#include <optional>

#include "collectives/device/device_choice.hpp"
#include "collectives/device/device_windows.hpp"
#include "collectives/device/write_guard.hpp"
#include "collectives/engine/buffers.hpp"
#include "collectives/engine/call.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Why a kernel gave up a wait.
struct CallTrouble {
  int member = 0;                        ///< Who was waited for.
  bool is_late = false;                  ///< Beyond the call's deadline,
  bool has_left = false;                 ///< or it has left; else it sent a message of another size.
  std::uint64_t sent = 0, expected = 0;  ///< Bytes.
};

/// Not thread-safe but for let_pass() and trouble(). All ranks enqueue the same calls in the same order.
class CallRunner {
 public:
  virtual ~CallRunner() = default;
  /// Enqueues the whole call, whose device is selected. After an error some of it may be enqueued.
  virtual Status enqueue(const Call& call, DeviceStream stream) = 0;
  /// Lets calls on windows run the programs of registered memory; both outlive the calls.
  void use_windows(const DeviceWindows& windows, WriteGuard& guard) {
    windows_ = &windows;
    guard_ = &guard;
  }
  /// Lets every wait of this rank pass, by a stream of its own if needed; again as long as peers may undo it.
  virtual Status let_pass(DeviceStream stream) = 0;
  /// Of a call that its stream ran; an abort is none.
  virtual std::optional<CallTrouble> trouble() const { return std::nullopt; }

 protected:
  /// What runs `call`: the program of registered memory where its buffers lie in windows (`use` then tells
  /// where, as `buffers` does), else the staged one.
  Result<const Algorithm*> choose(const Call& call, const Shape& shape, std::optional<WindowUse>& use,
                                  Buffers& buffers) const;
  WriteGuard* guard() const { return guard_; }
  virtual DeviceGround ground() const = 0;

 private:
  const DeviceWindows* windows_ = nullptr;
  WriteGuard* guard_ = nullptr;
};

// What runners have in common.
/// Of `call`, in storage that is used again; without staging.
void set_shape(Shape& shape, const Call& call, int rank, int world);
/// Without staging areas.
Buffers buffers_of(const Call& call, int rank);
Combine combine_of(const Call& call, int world, const Algorithm& algorithm);
/// In a group of one.
Status enqueue_alone(Backend& backend, const Call& call, DeviceStream stream);

}  // namespace lockstep::internal
