// SimWorld: whole communicators of real engines over a simulated network, in one thread on virtual time. Each
// rank works through a script of calls and checks every result; faults come from the schedule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/engine/sim_action.hpp"
#include "transports/sim/sim_network.hpp"

namespace lockstep::internal {

inline constexpr Nanos kVirtualMillisecond = 1'000'000;
inline constexpr Nanos kVirtualSecond = 1'000'000'000;

/// How a call of a script ended on one rank.
struct SimOutcome {
  Status status;
  std::string wrong;  ///< What the check of its buffers found; empty when all is well.
  Nanos ended = 0;
};

struct SimWorldOptions {
  int world = 2;
  std::uint64_t seed = 1;
  SimNetworkOptions network;
  int concurrency = 1;  ///< Calls of a rank in flight side by side.
  Nanos skew = 20'000;  ///< Ranks start at random times up to this.
  /// Survivors are told of a crash after up to this; 0 = never told.
  Nanos loss_notice = 50 * kVirtualMillisecond;
};

class SimWorld {
 public:
  explicit SimWorld(const SimWorldOptions& options);
  ~SimWorld();

  /// Appends to the script of one rank, or of all. After a failed call a rank makes one more and drops the
  /// rest.
  template <typename Scripted>  // SimCall or SimMessage
  void add(int rank, const Scripted& scripted) {
    append(rank, [scripted, rank] { return scripted.make(rank); });
  }
  template <typename Scripted>
  void add(const Scripted& scripted) {
    for (int rank = 0; rank < options_.world; ++rank) add(rank, scripted);
  }

  /// Runs until every live rank came to the end of its script (true) or the deadline of virtual time passed
  /// (false).
  bool run(Nanos deadline = 60 * kVirtualSecond);
  /// As run(), then everything must have succeeded with right results: empty, or the first thing that is
  /// wrong.
  std::string run_and_check(Nanos deadline = 60 * kVirtualSecond);

  SimSchedule& schedule() { return schedule_; }
  Engine& engine(int rank);
  const std::vector<SimOutcome>& outcomes(int rank) const;

 private:
  class Rank;
  using Maker = std::function<std::unique_ptr<SimAction>()>;
  void append(int rank, Maker maker);
  bool finished();

  SimWorldOptions options_;
  SimSchedule schedule_;
  SimNetwork network_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  int unfinished_ = 0;  ///< The first rank that was not seen to be finished; a finished rank stays so.
};

}  // namespace lockstep::internal
