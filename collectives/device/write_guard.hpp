// WriteGuard: steps that write to other ranks' registered memory do so only while these have it open, so that
// a rank that was stopped and resumes writes nothing after the others gave up
// (lib/device/sync/permit_body.hpp).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lib/device/sync/sync_kernels.hpp"

namespace lockstep::internal {

/// Of one rank. Not thread-safe.
class WriteGuard {
 public:
  /// `words`: the members', zero at first, kWordStride apart by writer; at most kMaxPhaseRanks. `has_ended`:
  /// whether a member's process has. `device` is selected, `backend` outlives it.
  static Result<std::unique_ptr<WriteGuard>> make(Backend& backend, int device, int rank,
                                                  const std::vector<std::byte*>& words,
                                                  std::function<bool(int member)> has_ended);
  /// Nothing that it enqueued is still to run.
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

  /// What `write(permit)` enqueues runs only when all of it is enqueued, and the members' memory is open. May
  /// be captured: a graph is enqueued as a whole.
  template <typename Write>
  Status guarded(DeviceStream stream, Write write) {
    LOCKSTEP_RETURN_IF_ERROR(hold(stream));
    Status status = sync::enter(backend_, arguments_, stream);
    if (status.ok()) status = write(const_cast<const std::uint32_t*>(arguments_.permit));
    const Status ended = end(stream);  // What is held goes on, whatever failed.
    return status.ok() ? ended : status;
  }

  /// Of a writer's kernels, which are in its stream already: they end in milliseconds, or when others let
  /// them on its device. They may be lost with a device that failed, while their process lives.
  static constexpr Nanos kLongest = 60'000'000'000;
  /// Nobody writes to this rank's memory from here on. Waits for who does until it is through or has ended;
  /// timeout: neither came in `longest`, or the own device did not come to look.
  Status close(DeviceStream stream, Nanos longest = kLongest);

 private:
  WriteGuard(Backend& backend, const sync::PermitArguments& arguments,
             std::function<bool(int member)> has_ended)
      : backend_(backend), arguments_(arguments), has_ended_(std::move(has_ended)) {}
  Status hold(DeviceStream stream);
  Status end(DeviceStream stream);
  int writer(Nanos waited) const;

  /// In pinned memory.
  struct Signals {
    std::uint32_t go;  ///< How many guarded parts are enqueued to their end.
    std::uint32_t writers[sync::kMaxPhaseRanks];
  };

  Backend& backend_;
  sync::PermitArguments arguments_;
  const std::function<bool(int member)> has_ended_;
  Signals* signals_ = nullptr;
  std::uint32_t parts_ = 0;
  bool closed_ = false;
};

}  // namespace lockstep::internal
