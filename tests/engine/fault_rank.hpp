// What a rank does in a round of the random faults: steps until one fails, looks at that error, goes on with
// what must still work, and leaves nothing behind.
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/engine/fault_round.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/engine/random_steps.hpp"

namespace lockstep::testing {

/// How long the others wait for a rank that never calls, or is stopped for so long.
inline constexpr std::chrono::milliseconds kGivesUpAfter(500);

/// What the ranks of a round and the test tell each other.
struct FaultBoard {
  static constexpr int kRanks = 5;
  std::atomic<std::uint64_t> steps[kRanks]{};  ///< Begun by each.
  std::atomic<std::int64_t> happened{0};       ///< When the fault did, on the steady clock; 0: not yet.
  std::atomic<int> heard{0};                   ///< Ranks that have their error, without the victim.
  std::atomic<bool> over{false};               ///< The victim has ended, or has its error too.
  std::atomic<int> split{0}, at_deadline{0};   ///< Ranks that have come so far.

  void happens();
  /// Of the part where it happens.
  void await_end(const FaultRound& round) const;
};

class FaultRank {
 public:
  FaultRank(const FaultRound& round, FaultBoard& board, int rank);
  /// The first group meets at `first`; who is left, at `second`.
  void run(const MeetingPlace& first, const MeetingPlace& second);

 private:
  using Clock = std::chrono::steady_clock;

  bool is_victim() const { return rank_ == round_.victim; }
  void run_first(const MeetingPlace& place);
  void run_part(Communicator part);
  void run_undisturbed(Communicator& group, internal::RandomSteps& steps);
  void run_other_half(Communicator part);
  void step_until_error(std::optional<Communicator>& part);
  void do_step(std::optional<Communicator>& part, std::uint64_t step);
  void commit(std::optional<Communicator>& part);
  void hear(const Error& error, int rank, int victim);
  void expect_ended(Communicator& group, int rank, int victim);
  void run_whole(Communicator& whole);
  void run_survivors(const MeetingPlace& place);

  const FaultRound round_;
  FaultBoard& board_;
  const int rank_;
  std::mt19937_64 own_;
  internal::RandomSteps steps_;
  CallOptions options_;
  Clock::time_point began_{};  ///< The call under way.
};

}  // namespace lockstep::testing
