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

  // For who holds the order of the calls.
  /// Writes down the next one.
  StreamCall note(const Call& call);
  /// Its stream has all of the task.
  void tell_enqueued(const DeviceTask& task) { tell(task, &MemberControl::enqueued); }

  // For the worker, in any order with the above.
  /// By these the deadline of a peer's call names who it waits for: this rank's stream has come to the task,
  void tell_reached(const DeviceTask& task) { tell(task, &MemberControl::reached); }
  /// waits for these of `all` in its part between hosts, now,
  void tell_awaited(std::vector<int> ranks);
  /// has done that part,
  void tell_carried(const DeviceTask& task);
  /// and the stream has passed the task.
  void tell_passed(const DeviceTask& task) { tell(task, &MemberControl::passed); }
  /// From time to time, as long as the worker has such a task. A process that is stopped tells nothing.
  void tell_looked(Nanos now);
  /// Without a failure, once it is through with its own operations.
  bool has_left(int member) const;
  /// A rank that called something else at this place, or has left before it, is named on all ranks.
  Status compare(const DeviceTask& task) const;
  /// The deadline passed: who has not made the call, or has not come to it, or tells nothing any more, or has
  /// yet to enqueue some of it; else whom a kernel waited for (-1: none told), and who waits for whom between
  /// the hosts; else whose streams have not passed it. Where that tells of nobody, it says so.
  Status late(const DeviceTask& task, int awaited, Nanos now) const;

 private:
  MemberControl* told_by(int member) const;
  void tell(const DeviceTask& task, std::atomic<std::uint64_t> MemberControl::*what);
  template <typename Words>
  std::string of_peers(const DeviceTask& task, const Words& words) const;
  CallFacts facts_of(const Call& call) const;
  Status differs(const DeviceTask& task, int member, const CallFacts& theirs) const;
  std::string who_has_not_come(const DeviceTask& task) const;
  std::string who_keeps_it(const DeviceTask& task, Nanos now) const;
  std::string who_has_not_passed(const DeviceTask& task) const;
  std::string who_waits_between_hosts(const DeviceTask& task, Nanos now) const;

  Engine& engine_;
  const EngineGroup& all_;
  const DeviceWindows& windows_;
  std::uint64_t calls_ = 0, history_ = 0;  // How many, and a hash of them.
  std::vector<int> awaited_;               // As last told.
};

}  // namespace lockstep::internal
