// StreamCalls: the collectives that the callers' streams run themselves, and between hosts those that the
// worker runs, as all ranks of a host see them.
#pragma once

#include <string>
#include <vector>

#include "collectives/device/device_task.hpp"
#include "collectives/device/device_windows.hpp"
#include "collectives/engine/engine.hpp"

namespace lockstep::internal {

/// What a task is called in errors; of messages, what has to do with `peer`, where it is known who is waited
/// for.
std::string name_of(const DeviceTask& task, int peer = -1);

/// No engine of a host numbers these calls or compares them: here every rank writes them down for its peers,
/// beside the records of an engine, and the worker of each reads what the others wrote.
class StreamCalls {
 public:
  /// In the domain of `engine` the ranks tell each other; in a group of one there is none. `all`: the ranks
  /// of all hosts. They outlive it.
  StreamCalls(Engine& engine, const EngineGroup& all, const DeviceWindows& windows)
      : engine_(engine), all_(all), windows_(windows) {}

  /// Writes down the next one. For who holds the order of the calls.
  StreamCall note(const Call& call);

  // For the worker, in any order with the above.
  /// This rank's stream has come to the task: the deadline of a peer's call names who it waits for.
  void tell_reached(const DeviceTask& task);
  /// So does whom of `all` this rank waits for in its part between hosts, now; and that it has done that
  /// part.
  void tell_awaited(std::vector<int> ranks);
  void tell_carried(const DeviceTask& task);
  /// Without a failure, once it is through with its own operations.
  bool has_left(int member) const;
  /// A rank that called something else at this place, or has left before it, is named on all ranks.
  Status compare(const DeviceTask& task) const;
  /// The deadline passed: who has not made the call, or has not come to it; else whom a kernel waited for
  /// (-1: none told), and who waits for whom between the hosts. Where that tells of nobody, it says so.
  Status late(const DeviceTask& task, int awaited) const;

 private:
  MemberControl* told_by(int member) const;
  CallFacts facts_of(const Call& call) const;
  Status differs(const DeviceTask& task, int member, const CallFacts& theirs) const;
  std::string who_has_not_come(const DeviceTask& task) const;
  std::string who_waits_between_hosts(const DeviceTask& task) const;

  Engine& engine_;
  const EngineGroup& all_;
  const DeviceWindows& windows_;
  std::uint64_t calls_ = 0, history_ = 0;  // How many, and a hash of them.
  std::vector<int> awaited_;               // As last told.
};

}  // namespace lockstep::internal
