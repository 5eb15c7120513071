#include "integrations/nccl/group.hpp"

#include <algorithm>
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
  std::vector<Outcome> outcomes(jobs.size());
  std::vector<std::thread> threads;
  bool behind = false;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!jobs[i].comm->config().blocking) {
      run_behind(std::move(jobs[i]));
      behind = true;
    } else {
      threads.emplace_back([&, i] { outcomes[i] = run(jobs[i]); });
    }
  }
  for (std::thread& thread : threads) thread.join();
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(),
                                   [](const Outcome& o) { return o.result != ncclSuccess; });
  if (failed != outcomes.end()) return *failed;
  return {behind ? ncclInProgress : ncclSuccess, {}};
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
