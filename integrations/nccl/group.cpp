#include "integrations/nccl/group.hpp"

#include <chrono>
#include <functional>
#include <utility>

namespace lockstep::nccl {
namespace {

// What ncclCommAbort waits for streams that wait for something else, before it leaves them to the background.
constexpr std::chrono::seconds kAbortPatience{1};

struct Outcome {
  ncclResult_t result = ncclSuccess;
  std::string text;
};

Outcome run(const Job& job) noexcept {
  const auto body = [&job] {
    if (job.in_order) job.source->refuse_if_aborted();
    job.run();
  };
  Outcome outcome{guarded(job.function, body), {}};
  if (outcome.result == ncclSuccess) return outcome;
  outcome.text = last_text();
  if (job.abandon) job.abandon(outcome.result, outcome.text);
  return outcome;
}

bool is_awaited(const Job& job) { return job.comm->config().blocking; }

/// The job in its place behind those that were called before it on the same ranks. To be called once.
std::function<Outcome()> in_turn(Job job) {
  const auto own = std::make_shared<Ending>();
  const auto before = job.in_order ? job.source->queue(own) : nullptr;
  if (!is_awaited(job)) job.source->unsettle();
  if (job.comm != job.source) job.source->child_begins(job.comm);
  return [own, before, job = std::move(job)] {
    if (before != nullptr) before->wait();
    Outcome outcome = run(job);
    if (job.comm != job.source) job.source->child_began(job.comm);
    if (!is_awaited(job)) {
      if (outcome.result != ncclSuccess) job.comm->note_failure(outcome.result, outcome.text);
      job.source->settle();
    }
    own->reach();
    return outcome;
  };
}

/// Several ranks of one communicator may be among them, so each has a thread.
Outcome run_side_by_side(std::vector<Job> jobs) {
  Endings awaited;
  std::vector<std::shared_ptr<Outcome>> outcomes;
  Outcome first;
  for (Job& job : jobs) {
    const bool waits = is_awaited(job);
    const auto outcome = std::make_shared<Outcome>();
    auto ending = in_background([outcome, turn = in_turn(std::move(job))] { *outcome = turn(); });
    if (!waits) {
      first.result = ncclInProgress;
      continue;
    }
    awaited.push_back(std::move(ending));
    outcomes.push_back(outcome);
  }
  for (const auto& ending : awaited) ending->wait();
  for (const auto& outcome : outcomes) {
    if (outcome->result == ncclSuccess) continue;
    return *outcome;
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
  if (!open()) {
    call(ranks);
    return comm->complete();
  }
  calls_of(comm).collectives.push_back(std::move(call));
}

void Group::add(const std::shared_ptr<ncclComm>& comm, const Message& message) {
  DeviceCommunicator& ranks = comm->collectives();
  if (message.count == 0) return;  // on both sides
  if (!open()) {
    submit(ranks, {message});
    return comm->complete();
  }
  calls_of(comm).messages.push_back(message);
}

ncclResult_t Group::add(Job job) {
  if (open()) {
    jobs_.push_back(std::move(job));
    return ncclSuccess;
  }
  const bool waits = is_awaited(job);
  auto turn = in_turn(std::move(job));
  if (waits) return turn().result;
  in_background([turn = std::move(turn)] { turn(); });
  return ncclInProgress;
}

void Group::add_aborted(std::shared_ptr<ncclComm> comm) {
  std::erase_if(calls_, [&](const Calls& calls) { return calls.comm == comm; });
  std::erase_if(jobs_, [&](const Job& job) {
    if (job.comm != comm && !(job.in_order && job.source == comm)) return false;
    if (job.abandon)
      job.abandon(ncclRemoteError, std::string(job.function) + ": ncclCommAbort was called in its group");
    return true;
  });
  aborted_.push_back(std::move(comm));
  if (!open()) release_aborted();
}

void Group::discard() {
  depth_ = 0;
  const ncclResult_t why = std::exchange(refused_, ncclSuccess);
  calls_.clear();
  for (const Job& job : std::exchange(jobs_, {})) {
    if (job.abandon)
      job.abandon(why != ncclSuccess ? why : ncclInvalidUsage,
                  std::string(job.function) + ": its group was dropped, and nothing of it started");
  }
  release_aborted();
}

void Group::release_aborted() {
  if (!aborted_.empty()) wait_for({let_go(std::exchange(aborted_, {}))}, kAbortPatience);
}

ncclResult_t Group::end() {
  if (depth_ == 0) throw invalid_usage("there was no ncclGroupStart");
  if (depth_ > 1) {
    --depth_;
    return ncclSuccess;
  }
  if (const ncclResult_t refused = refused_; refused != ncclSuccess) {
    discard();
    return refused;
  }
  std::vector<Calls> calls = std::exchange(calls_, {});
  std::vector<Job> jobs = std::exchange(jobs_, {});
  discard();
  const Outcome outcome = run_side_by_side(std::move(jobs));
  if (outcome.result != ncclSuccess && outcome.result != ncclInProgress)
    throw Refusal(outcome.result, outcome.text);
  // Each communicator's collectives before its messages: ranks may have mixed them differently.
  for (Calls& of_one : calls) {
    DeviceCommunicator& ranks = of_one.comm->collectives();
    for (const Collective& call : of_one.collectives) call(ranks);
    if (!of_one.messages.empty()) submit(ranks, of_one.messages);
  }
  for (const Calls& of_one : calls) of_one.comm->complete();  // Now that all have begun.
  return outcome.result;
}

}  // namespace lockstep::nccl
