// DeviceClock: when the parts of steps were, by the device's own clock, without ever waiting for it.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "ddp/step_clock.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Two sets of events take turns. A step is measured unless the device has yet to pass the step before the
/// one before: a host that runs far ahead measures some steps only. Who calls has selected the device.
class DeviceClock {
 public:
  /// Of processes that take turns on a GPU, where each event costs such a turn.
  static constexpr std::uint64_t kSeldom = 16;
  /// Of `rank`, whose steps have the buckets of `plan`; it outlives the clock. No more than one step of
  /// `every` is measured, the first among them.
  DeviceClock(Backend& backend, int device, const BucketPlan& plan, int rank, std::uint64_t every = 1);
  ~DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;

  /// What the device has passed is known from here on. Before the plan changes, with the device at rest.
  void collect();
  /// The plan changed.
  void use_plan();

  // ---- of the step under way: what is in the stream by now
  void begin(DeviceStream stream);
  /// Any thread; the first one of a step counts.
  void mark(DeviceStream stream);
  void bucket_started(std::size_t index, DeviceStream stream) { record(kBuckets + 2 * index, stream); }
  void bucket_done(std::size_t index, DeviceStream stream) { record(kBuckets + 2 * index + 1, stream); }
  void wait_entered(DeviceStream stream);
  /// The step ended well. begin() follows.
  void end(std::uint64_t step, const std::vector<Nanos>& computed, DeviceStream stream);

  /// From the step's begin to wait(), by the host's clock: when the peers can be asked for theirs.
  Nanos computed() const noexcept { return host_entered_ - host_began_; }
  /// The last step that was measured, as far as collect() knows.
  const StepStatistics& latest() const noexcept { return latest_; }

 private:
  enum Event : std::size_t { kBegan, kMarked, kEntered, kEnded, kBuckets };
  struct Set {
    std::vector<DeviceEvent> events;
    bool marked = false;
    bool pending = false;  ///< Recorded to the end, and not collected.
    std::uint64_t step = 0;
    std::vector<Nanos> computed;
  };
  void record(std::size_t event, DeviceStream stream);
  bool passed(const Set& set);
  void collect(Set& set);
  Nanos since_begin(const Set& set, std::size_t event);
  void destroy_events();

  Backend& backend_;
  const int device_;
  const BucketPlan& plan_;
  const int rank_;
  const std::uint64_t every_;
  std::uint64_t begun_ = 0;  ///< Steps.
  std::array<Set, 2> sets_;
  Set* set_ = nullptr;  ///< Of the step under way; null: it is not measured.
  std::size_t turn_ = 0;
  std::atomic<bool> marked_{false};
  Nanos host_began_ = 0, host_entered_ = 0;
  StepStatistics latest_;
};

}  // namespace lockstep::internal
