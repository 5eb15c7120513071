// Guardian: a process that outlives a killed lockstep-run for the moment it takes to kill what lockstep-run
// had started.
//
// It holds the reading end of a pipe whose writing end is lockstep-run's alone. Through it, it learns of the
// process groups that exist; when it ends, however that came, the guardian kills the groups that are left
// (grandchildren too, which no PR_SET_PDEATHSIG reaches).
#pragma once

#include <sys/types.h>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::run {

class Guardian {
 public:
  /// Forks: call it before anything else starts a thread or opens a descriptor.
  static internal::Result<Guardian> start();
  Guardian(Guardian&&) noexcept;
  ~Guardian();

  void add(pid_t group);
  /// The group is dead. Must come before its leader is reaped, while no other process can get its number.
  void remove(pid_t group);

 private:
  Guardian(pid_t pid, internal::Fd pipe) : pid_(pid), pipe_(std::move(pipe)) {}
  void tell(pid_t message);

  pid_t pid_ = -1;
  internal::Fd pipe_;
};

}  // namespace lockstep::run
