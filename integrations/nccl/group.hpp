// Group calls: what a thread calls between ncclGroupStart and ncclGroupEnd starts together at the end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "integrations/nccl/comm.hpp"
#include "integrations/nccl/result.hpp"

namespace lockstep::nccl {

/// A send or a receive of one communicator.
struct Message {
  bool sends = false;
  const void* buffer = nullptr;
  std::size_t count = 0;
  DataType type = DataType::u8;
  int peer = 0;
  Stream stream = nullptr;
};

/// What blocks for other ranks: making, splitting, shrinking, registering windows. `run` throws on failure.
struct Job {
  std::shared_ptr<ncclComm> comm;    ///< Whose config says whether the caller waits.
  std::shared_ptr<ncclComm> source;  ///< In progress meanwhile, if the caller does not wait.
  bool in_order;  ///< It runs after the jobs before it with this source, whose ranks it uses.
  const char* function;
  std::function<void()> run;
  /// What else there is to do when it failed, or its group was dropped. May be empty.
  std::function<void(ncclResult_t, const std::string&)> abandon;
};

/// Of the calling thread.
class Group {
 public:
  static Group& current();

  bool open() const noexcept { return depth_ > 0; }
  void start() noexcept { ++depth_; }
  /// The end of the outermost group starts everything: collectives of each communicator in the order of their
  /// calls, then its messages as one batch; before them jobs side by side, those on the same ranks in order.
  /// After a refused call it starts nothing and gives that call's code.
  ncclResult_t end();
  /// Leaves the outermost group and forgets what is in it.
  void discard();

  using Collective = std::function<void(DeviceCommunicator&)>;
  /// Now, or at the end of the group.
  void add(const std::shared_ptr<ncclComm>& comm, Collective call);
  void add(const std::shared_ptr<ncclComm>& comm, const Message& message);
  ncclResult_t add(Job job);
  /// Lets go of it, and waits a little for its streams; in a group at its end, when all of them are aborted.
  void add_aborted(std::shared_ptr<ncclComm> comm);

  /// The code of a call inside this group.
  void note(ncclResult_t result) noexcept {
    if (open() && refused_ == ncclSuccess && result != ncclInProgress) refused_ = result;
  }

 private:
  struct Calls {
    std::shared_ptr<ncclComm> comm;
    std::vector<Collective> collectives;
    std::vector<Message> messages;
  };
  void release_aborted();
  Calls& calls_of(const std::shared_ptr<ncclComm>& comm);

  int depth_ = 0;
  ncclResult_t refused_ = ncclSuccess;
  std::vector<Calls> calls_;  ///< In order of their first call.
  std::vector<Job> jobs_;
  std::vector<std::shared_ptr<ncclComm>> aborted_;
};

/// As guarded(), for functions that may be called inside a group.
template <typename Body>
ncclResult_t grouped(const char* function, Body&& body) noexcept {
  const ncclResult_t result = guarded(function, body);
  Group::current().note(result);
  return result;
}

}  // namespace lockstep::nccl
