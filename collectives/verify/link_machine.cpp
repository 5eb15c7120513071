// Messages: a send and its receive as one step, and the order within a rank by clocks of its lanes.
#include <deque>
#include <unordered_map>

#include "collectives/verify/machine.hpp"
#include "collectives/verify/runs.hpp"
#include "collectives/verify/structure.hpp"

namespace lockstep::internal {
namespace {

/// A lane of a rank. Its clock counts, for each lane of the rank, the steps known to be over; events are
/// {lane, step + 1}.
struct LaneState {
  std::size_t next = 0;  ///< Step to run.
  std::vector<std::uint32_t>
      clock;  ///< At the last completed step, joined with what the next step waits for once it is ready.
  std::vector<std::uint32_t> history;  ///< Clocks after each completed step, one after the other.
  std::vector<std::uint64_t> heard;    ///< Barrier: set of ranks known to have entered.
  std::vector<std::uint64_t> heard_history;
};

class LinkMachine : public Machine {
 public:
  explicit LinkMachine(const ProgramSet& links)
      : Machine(links), barrier_(links.shapes[0].collective == Collective::barrier) {}

  std::string run() {
    prepare();
    for (int rank = 0; rank < world(); ++rank) {
      const std::vector<std::uint32_t> nothing(lanes(rank).size() + 1);
      if (std::string finding = enter({rank, 0, {}, nothing}); !finding.empty()) return finding;
      wake(rank);
    }
    while (!awake_.empty()) {
      const auto [rank, lane] = awake_.front();
      awake_.pop_front();
      if (std::string finding = advance(rank, lane); !finding.empty()) return finding;
    }
    for (int rank = 0; rank < world(); ++rank) {
      if (std::string finding = finish(rank); !finding.empty()) return finding;
    }
    return {};
  }

 private:
  struct LaneName {
    int rank;
    std::size_t lane;
  };

  const std::vector<Lane>& lanes(int rank) const { return program(rank).lanes; }
  LaneState& state(int rank, std::size_t lane) { return states_[static_cast<std::size_t>(rank)][lane]; }
  std::uint64_t pair_key(int from, int to) const {
    return static_cast<std::uint64_t>(from) * static_cast<std::uint64_t>(world()) +
           static_cast<std::uint64_t>(to);
  }

  /// Finds the lane of every (pair, direction), and sets up the clocks.
  void prepare() {
    states_.resize(static_cast<std::size_t>(world()));
    const std::size_t words = (static_cast<std::size_t>(world()) + 63) / 64;
    for (int rank = 0; rank < world(); ++rank) {
      for (std::size_t lane = 0; lane < lanes(rank).size(); ++lane) {
        for (const Step& step : lanes(rank)[lane].steps) {
          if (step.kind == StepKind::send) sender_[pair_key(rank, step.peer)] = lane;
          if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
            receiver_[pair_key(step.peer, rank)] = lane;
        }
        LaneState fresh;
        fresh.clock.resize(lanes(rank).size());
        if (barrier_) {
          fresh.heard.resize(words);
          fresh.heard[static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << (rank % 64);
        }
        states_[static_cast<std::size_t>(rank)].push_back(std::move(fresh));
      }
    }
  }

  void wake(int rank) {
    for (std::size_t lane = 0; lane < lanes(rank).size(); ++lane) awake_.push_back({rank, lane});
  }

  const Step* next_step(int rank, std::size_t lane) {
    const auto& steps = lanes(rank)[lane].steps;
    const std::size_t next = state(rank, lane).next;
    return next < steps.size() ? &steps[next] : nullptr;
  }

  /// Whether the lane's next step may start. If so, its clock knows what the step waited for.
  bool ready(int rank, std::size_t lane) {
    const Step* step = next_step(rank, lane);
    if (step == nullptr) return false;
    for (const After& after : step->after) {
      if (after.steps > 0 && state(rank, after.lane).next < after.steps) return false;
    }
    LaneState& mine = state(rank, lane);
    for (const After& after : step->after) {
      if (after.steps == 0) continue;
      const LaneState& other = state(rank, after.lane);
      join(mine.clock, other.history, after.steps - 1);
      join_sets(mine.heard, other.heard_history, after.steps - 1);
    }
    return true;
  }

  static void join(std::vector<std::uint32_t>& clock, const std::vector<std::uint32_t>& history,
                   std::size_t step) {
    for (std::size_t i = 0; i < clock.size(); ++i)
      clock[i] = std::max(clock[i], history[step * clock.size() + i]);
  }
  static void join_sets(std::vector<std::uint64_t>& set, const std::vector<std::uint64_t>& history,
                        std::size_t step) {
    for (std::size_t i = 0; i < set.size(); ++i) set[i] |= history[step * set.size() + i];
  }

  /// The step at hand, which knows itself.
  Moment begin(int rank, std::size_t lane) {
    LaneState& mine = state(rank, lane);
    mine.clock[lane] = static_cast<std::uint32_t>(mine.next + 1);
    return {rank, 0, {static_cast<std::uint32_t>(lane), mine.clock[lane]}, mine.clock};
  }
  void complete(int rank, std::size_t lane) {
    LaneState& mine = state(rank, lane);
    ++mine.next;
    mine.history.insert(mine.history.end(), mine.clock.begin(), mine.clock.end());
    mine.heard_history.insert(mine.heard_history.end(), mine.heard.begin(), mine.heard.end());
  }

  /// Runs the lane as far as it goes.
  std::string advance(int rank, std::size_t lane) {
    bool moved = false;
    while (ready(rank, lane)) {
      const Step& step = *next_step(rank, lane);
      if (step.kind == StepKind::copy || step.kind == StepKind::reduce) {
        if (std::string finding = run_local(begin(rank, lane), step); !finding.empty())
          return at(rank, lane, finding);
        complete(rank, lane);
      } else {
        const bool sends = step.kind == StepKind::send;
        const LaneName other = partner(rank, step);
        const Step* theirs =
            other.rank < 0 || !ready(other.rank, other.lane) ? nullptr : next_step(other.rank, other.lane);
        const bool meets =
            theirs != nullptr && theirs->peer == rank && (theirs->kind == StepKind::send) != sends;
        if (!meets) break;
        const LaneName from = sends ? LaneName{rank, lane} : other, to = sends ? other : LaneName{rank, lane};
        if (std::string finding = transfer(from, to); !finding.empty()) return finding;
        wake(other.rank);
      }
      moved = true;
    }
    if (moved) wake(rank);
    return {};
  }

  /// The lane at the other end of a message; rank -1 when the peer never answers.
  LaneName partner(int rank, const Step& step) const {
    const bool sends = step.kind == StepKind::send;
    const auto& table = sends ? receiver_ : sender_;
    const auto found = table.find(sends ? pair_key(rank, step.peer) : pair_key(step.peer, rank));
    return found == table.end() ? LaneName{-1, 0} : LaneName{step.peer, found->second};
  }

  std::string transfer(LaneName from, LaneName to) {
    const Step& send = *next_step(from.rank, from.lane);
    const Step& recv = *next_step(to.rank, to.lane);
    const Moment sending = begin(from.rank, from.lane), receiving = begin(to.rank, to.lane);
    if (std::string finding = run_transfer(sending, send, receiving, recv); !finding.empty())
      return at(to.rank, to.lane, finding);
    join_sets(state(to.rank, to.lane).heard, state(from.rank, from.lane).heard, 0);
    complete(from.rank, from.lane);
    complete(to.rank, to.lane);
    return {};
  }

  std::string finish(int rank) {
    std::vector<std::uint32_t> everything;
    std::vector<std::uint64_t> heard(state_words());
    for (std::size_t lane = 0; lane < lanes(rank).size(); ++lane) {
      const std::size_t next = state(rank, lane).next;
      if (next < lanes(rank)[lane].steps.size())
        return at(rank, lane, "never completes: deadlock without buffering");
      everything.push_back(static_cast<std::uint32_t>(next));
      if (barrier_) join_sets(heard, state(rank, lane).heard, 0);
    }
    everything.push_back(0);
    if (barrier_) {
      for (int peer = 0; peer < world(); ++peer) {
        const bool known =
            rank == peer || ((heard[static_cast<std::size_t>(peer) / 64] >> (peer % 64)) & 1) != 0;
        if (!known)
          return "rank " + std::to_string(rank) + " leaves the barrier without having heard of rank " +
                 std::to_string(peer);
      }
    }
    const auto caller = static_cast<std::uint32_t>(lanes(rank).size());
    std::string finding = leave({rank, 0, {caller, 0}, everything});
    return finding.empty() ? "" : "rank " + std::to_string(rank) + ": " + finding;
  }
  std::size_t state_words() const { return barrier_ ? (static_cast<std::size_t>(world()) + 63) / 64 : 0; }

  std::string at(int rank, std::size_t lane, const std::string& finding) {
    return name_step(set(), rank, lane, state(rank, lane).next) + " " + finding;
  }
  std::string name(int owner, Event event) const override {
    if (event.time == 0) return "the caller of rank " + std::to_string(owner);
    return name_step(set(), owner, event.thread, event.time - 1);
  }

  bool barrier_;
  std::vector<std::vector<LaneState>> states_;  ///< By rank and lane.
  std::unordered_map<std::uint64_t, std::size_t> sender_, receiver_;
  std::deque<LaneName> awake_;
};

}  // namespace

std::string run_over_links(const ProgramSet& set) { return LinkMachine(set).run(); }

}  // namespace lockstep::internal
