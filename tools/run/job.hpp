// Job: the ranks while they run. One thread, one poll(2) over signals, process ends and output.
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include <memory>
#include <optional>
#include <vector>

#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/net/fd.hpp"
#include "tools/run/child.hpp"
#include "tools/run/guardian.hpp"
#include "tools/run/job_environment.hpp"
#include "tools/run/options.hpp"
#include "tools/run/rank_output.hpp"
#include "tools/run/screen.hpp"

namespace lockstep::run {

class Job {
 public:
  /// `signals` is a signalfd of the signals to pass on, which are blocked. All outlive the job.
  Job(const RunOptions& options, Guardian& guardian, internal::StoreServer& store,
      const internal::Fd& signals)
      : options_(options), guardian_(guardian), store_(store), signals_(signals) {}
  /// Kills what still runs.
  ~Job();

  /// Starts every rank, which may have so many descriptors open.
  internal::Status start(const JobFacts& facts, const rlimit& descriptors);
  /// Waits for all of them. The exit code of the first that failed, or 0.
  int run();

 private:
  struct Rank {
    Child child;
    std::unique_ptr<RankOutput> output;
    std::optional<int> status;  ///< As of waitpid, once it has ended.
  };
  struct Failure {
    int rank = -1;
    pid_t pid = -1;
    int status = 0;
  };

  internal::Status start_rank(int rank, const ChildOptions& options);
  bool any_running() const;
  void take_turn();
  void wait_for_events();
  int poll_timeout() const;
  void handle_signals();
  void read_output(Rank& rank, Screen::Stream stream);
  void collect_ended();
  void collect(int rank);
  int reap(pid_t leader);
  void reap_orphans() const;
  void fail(int rank);
  void stop_others();
  void begin_grace();
  void kill_all();
  void signal_all(int signal) const;
  void report();

  const RunOptions& options_;
  Guardian& guardian_;
  internal::StoreServer& store_;
  const internal::Fd& signals_;
  internal::Fd ends_;  ///< An epoll of the ranks' processes.
  Screen screen_;
  std::vector<Rank> ranks_;
  std::optional<Failure> failure_;           ///< The first.
  std::optional<internal::Deadline> grace_;  ///< Begun by the first failure, or signal that ends the job.
  bool killed_ = false;                      ///< It is over.
};

}  // namespace lockstep::run
