// Shared memory: the order between ranks by vector clocks, which an awaited phase joins.
#include <algorithm>

#include "collectives/verify/machine.hpp"
#include "collectives/verify/runs.hpp"
#include "collectives/verify/structure.hpp"

namespace lockstep::internal {
namespace {

/// A rank and what it knows. Its events in each call are: enter, the steps, leave; times count on through the
/// calls.
struct RankState {
  int call = 0;
  std::size_t next = 0;  ///< Event of the call to come: 0 enter, 1 .. steps the steps, steps + 1 leave.
  std::vector<std::uint32_t> clock;   ///< By rank: its latest event known here.
  std::vector<std::uint32_t> phases;  ///< Clocks at each phase published so far, one after the other.
};

class DomainMachine : public Machine {
 public:
  DomainMachine(const ProgramSet& set, int calls) : Machine(set), calls_(calls) {
    states_.resize(set.programs.size());
    for (RankState& state : states_) state.clock.resize(set.programs.size());
  }

  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < world(); ++rank) {
        while (state(rank).call < calls_ && ready(rank)) {
          if (std::string finding = run_event(rank); !finding.empty()) return finding;
          moved = true;
        }
      }
    }
    for (int rank = 0; rank < world(); ++rank) {
      if (state(rank).call < calls_)
        return name(rank, {static_cast<std::uint32_t>(rank), time(rank)}) + " waits for ever";
    }
    return {};
  }

 private:
  RankState& state(int rank) { return states_[static_cast<std::size_t>(rank)]; }
  const RankState& state(int rank) const { return states_[static_cast<std::size_t>(rank)]; }
  const std::vector<Step>& steps(int rank) const { return program(rank).lanes[0].steps; }
  std::uint32_t events_per_call(int rank) const { return static_cast<std::uint32_t>(steps(rank).size() + 2); }
  std::uint32_t time(int rank) const {
    return static_cast<std::uint32_t>(state(rank).call) * events_per_call(rank) +
           static_cast<std::uint32_t>(state(rank).next) + 1;
  }
  /// How many phases a member has published once it reached `phase` of `call`.
  std::size_t phases_until(int call, std::uint32_t phase) const {
    return static_cast<std::size_t>(call) * program(0).phases + phase;
  }

  /// Calls visit(member) for those that an await waits for, the rank itself aside.
  template <typename Visit>
  bool all_awaited(int rank, const Step& step, Visit visit) {
    if (step.peer != kSelf) return visit(step.peer);
    for (int member = 0; member < world(); ++member) {
      if (member != rank && !visit(member)) return false;
    }
    return true;
  }

  /// Whether the next event may happen: an await must have what it waits for.
  bool ready(int rank) {
    const RankState& mine = state(rank);
    if (mine.next == 0 || mine.next > steps(rank).size()) return true;
    const Step& step = steps(rank)[mine.next - 1];
    if (step.kind != StepKind::await) return true;
    const std::size_t needed = phases_until(mine.call, step.phase);
    return all_awaited(rank, step,
                       [&](int member) { return state(member).phases.size() >= needed * states_.size(); });
  }

  std::string run_event(int rank) {
    RankState& mine = state(rank);
    const std::uint32_t now_time = time(rank);
    mine.clock[static_cast<std::size_t>(rank)] = now_time;
    const Moment now{rank, mine.call, {static_cast<std::uint32_t>(rank), now_time}, mine.clock};
    std::string finding;
    if (mine.next == 0) {
      finding = enter(now);
    } else if (mine.next <= steps(rank).size()) {
      finding = run_step(now, steps(rank)[mine.next - 1]);
    } else {
      finding = everybody_entered(rank);
      if (finding.empty()) finding = leave(now);
    }
    if (!finding.empty()) return name(rank, now.event) + " " + finding;
    if (++mine.next == events_per_call(rank)) {
      mine.next = 0;
      ++mine.call;
    }
    return {};
  }

  std::string run_step(const Moment& now, const Step& step) {
    RankState& mine = state(now.rank);
    if (step.kind == StepKind::publish) {
      mine.phases.insert(mine.phases.end(), mine.clock.begin(), mine.clock.end());
      return {};
    }
    if (step.kind != StepKind::await) return run_local(now, step);
    // What a member knew when it published this very phase; it may be further by now, but nobody may count on
    // that.
    const std::size_t known = phases_until(mine.call, step.phase) - 1;
    all_awaited(now.rank, step, [&](int member) {
      const std::uint32_t* clock = state(member).phases.data() + known * states_.size();
      for (std::size_t i = 0; i < states_.size(); ++i) mine.clock[i] = std::max(mine.clock[i], clock[i]);
      return true;
    });
    return {};
  }

  std::string everybody_entered(int rank) const {
    for (int member = 0; member < world(); ++member) {
      const std::uint32_t entered =
          static_cast<std::uint32_t>(state(rank).call) * events_per_call(member) + 1;
      if (state(rank).clock[static_cast<std::size_t>(member)] < entered) {
        return "does not know that rank " + std::to_string(member) + " has entered the call";
      }
    }
    return {};
  }

  std::string name(int, Event event) const override {
    const int rank = static_cast<int>(event.thread);
    if (event.time == 0) return "the caller of rank " + std::to_string(rank) + " before the first call";
    const std::uint32_t per_call = events_per_call(rank), index = (event.time - 1) % per_call;
    const std::string call = "call " + std::to_string((event.time - 1) / per_call);
    if (index == 0) return "rank " + std::to_string(rank) + " entering " + call;
    if (index + 1 == per_call) return "rank " + std::to_string(rank) + " leaving " + call;
    return name_step(set(), rank, 0, index - 1) + " in " + call;
  }

  int calls_;
  std::vector<RankState> states_;
};

}  // namespace

std::string run_in_domain(const ProgramSet& set, int calls) { return DomainMachine(set, calls).run(); }

}  // namespace lockstep::internal
