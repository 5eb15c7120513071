#include "integrations/nccl/group.hpp"

#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace lockstep::nccl {
namespace {

struct Outcome {
  ncclResult_t result = ncclSuccess;
  std::string text;
};

Outcome run(const Job& job) noexcept {
  Outcome outcome{guarded(job.function, job.run), {}};
  if (outcome.result != ncclSuccess) outcome.text = last_text();
  return outcome;
}

/// In a thread that nobody waits for: the communicator tells how it went.
void run_behind(Job job) {
  std::thread([job = std::move(job)] { run(job); }).detach();
}

/// Several ranks of one communicator may be among them, so each has a thread.
Outcome run_side_by_side(std::vector<Job>& jobs) {
  std::vector<std::future<Outcome>> awaited;  // They join their threads, also when a later one has none.
  Outcome first;
  for (Job& job : jobs) {
    if (!job.comm->config().blocking) {
      run_behind(std::move(job));
      first.result = ncclInProgress;
    } else {
      awaited.push_back(std::async(std::launch::async, run, std::cref(job)));
    }
  }
  for (std::future<Outcome>& each : awaited) {
    Outcome outcome = each.get();
    if (outcome.result != ncclSuccess && (first.result == ncclSuccess || first.result == ncclInProgress))
      first = std::move(outcome);
  }
  return first;
}

void submit(DeviceCommunicator& ranks, const std::vector<Message>& messages) {
  DeviceBatch batch = ranks.batch();
  for (const Message& m : messages) {
    if (m.sends) {
      batch.send(m.buffer, m.count, m.type, m.peer, m.stream);
    } else {
      batch.recv(const_cast<void*>(m.buffer), m.count, m.type, m.peer, m.stream);
    }
  }
  batch.submit();
}

}  // namespace

Group& Group::current() {
  thread_local Group group;
  return group;
}

Group::Calls& Group::calls_of(const std::shared_ptr<ncclComm>& comm) {
  for (Calls& calls : calls_) {
    if (calls.comm == comm) return calls;
  }
  return calls_.emplace_back(Calls{comm, {}, {}});
}

void Group::add(const std::shared_ptr<ncclComm>& comm, Collective call) {
  DeviceCommunicator& ranks = comm->collectives();
  if (!open()) return call(ranks);
  calls_of(comm).collectives.push_back(std::move(call));
}

void Group::add(const std::shared_ptr<ncclComm>& comm, const Message& message) {
  DeviceCommunicator& ranks = comm->collectives();
  if (message.count == 0) return;  // on both sides
  if (!open()) return submit(ranks, {message});
  calls_of(comm).messages.push_back(message);
}

ncclResult_t Group::add(Job job) {
  if (open()) {
    jobs_.push_back(std::move(job));
    return ncclSuccess;
  }
  if (!job.comm->config().blocking) {
    run_behind(std::move(job));
    return ncclInProgress;
  }
  job.run();
  return ncclSuccess;
}

void Group::discard() noexcept {
  depth_ = 0;
  refused_ = ncclSuccess;
  calls_.clear();
  jobs_.clear();
}

ncclResult_t Group::end() {
  if (depth_ == 0) throw invalid_usage("there was no ncclGroupStart");
  if (depth_ > 1) {
    --depth_;
    return ncclSuccess;
  }
  const ncclResult_t refused = refused_;
  std::vector<Calls> calls = std::move(calls_);
  std::vector<Job> jobs = std::move(jobs_);
  discard();
  if (refused != ncclSuccess) return refused;
  const Outcome outcome = run_side_by_side(jobs);
  if (outcome.result != ncclSuccess && outcome.result != ncclInProgress)
    throw Refusal(outcome.result, outcome.text);
  // Each communicator's collectives before its messages: ranks may have mixed them differently.
  for (Calls& of_one : calls) {
    DeviceCommunicator& ranks = of_one.comm->collectives();
    for (const Collective& call : of_one.collectives) call(ranks);
    if (!of_one.messages.empty()) submit(ranks, of_one.messages);
  }
  return outcome.result;
}

}  // namespace lockstep::nccl
