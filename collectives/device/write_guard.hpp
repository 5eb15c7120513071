// WriteGuard: steps that write to other ranks' registered memory do so only while these have it open, so that
// a rank that was stopped and resumes writes nothing after the others gave up
// (lib/device/sync/permit_body.hpp).
#pragma once

#include <memory>
#include <vector>

#include "lib/device/sync/sync_kernels.hpp"

namespace lockstep::internal {

/// Of one rank. Not thread-safe.
class WriteGuard {
 public:
  /// `words`: the members', zero at first, kWordStride apart by writer; at most kMaxPhaseRanks. `device` is
  /// selected, `backend` outlives it.
  static Result<std::unique_ptr<WriteGuard>> make(Backend& backend, int device, int rank,
                                                  const std::vector<std::byte*>& words);
  /// Nothing that it enqueued is still to run.
  ~WriteGuard();
  WriteGuard(const WriteGuard&) = delete;
  WriteGuard& operator=(const WriteGuard&) = delete;

  /// What `write(permit)` enqueues runs only when all of it is enqueued, and the members' memory is open. May
  /// be captured: a graph is enqueued as a whole.
  template <typename Write>
  Status guarded(DeviceStream stream, Write write) {
    Status status = begin(stream);
    if (status.ok()) status = write(const_cast<const std::uint32_t*>(arguments_.permit));
    const Status ended = end(stream);  // What begin() made wait goes on, whatever failed.
    return status.ok() ? ended : status;
  }

  /// Nobody writes to this rank's memory from here on. Waits for who does, but not for ever.
  Status close(DeviceStream stream);

 private:
  WriteGuard(Backend& backend, const sync::PermitArguments& arguments)
      : backend_(backend), arguments_(arguments) {}
  Status begin(DeviceStream stream);
  Status end(DeviceStream stream);

  /// In pinned memory.
  struct Signals {
    std::uint32_t go;      ///< How many guarded parts are enqueued to their end.
    std::uint32_t abort;   ///< Stays 0.
    std::uint32_t report;  ///< Of a wait for a writer that was given up.
  };

  Backend& backend_;
  sync::PermitArguments arguments_;
  Signals* signals_ = nullptr;
  std::uint32_t parts_ = 0;
  bool closed_ = false;
};

}  // namespace lockstep::internal
