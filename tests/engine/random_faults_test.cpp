// Random faults among real processes: 2 to 5 ranks make random calls, and at a random moment one of them is
// killed or stopped, leaves, aborts, makes another call than the others, a wrong one, or none any more. Every
// other rank must hear of it in time, by an error that names what really happened and to whom; what returned
// well is right; memory of calls that have ended stays as it is; whoever is left goes on with another group.
//
// `random_faults_test --operations 1000` does the rounds 1 to 1000 over each transport, and with
// --gtest_random_seed=1000 those that follow.
#include <signal.h>

#include "tests/engine/fault_rank.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/transports.hpp"

namespace lockstep::testing {
namespace {

using internal::testing::Shared;
using internal::testing::wait_for;

/// A rank that takes longer for a round hangs.
constexpr std::chrono::seconds kRoundTakes(40);
constexpr std::chrono::milliseconds kStopped(20);
/// Of a start, in units of a round's delay.
constexpr int kStartTakes = 20;

class Inflicted {
 public:
  Inflicted(const FaultRound& round, FaultBoard& board, const std::vector<pid_t>& ranks)
      : round_(round), board_(board), victim_(ranks[static_cast<std::size_t>(round.victim)]) {}

  /// Does to the victim what it does not do itself. Its wait status, where it has been waited for.
  std::optional<int> run() {
    switch (round_.fault) {
      case Fault::none:
        await_step();
        stop_for(kStopped);
        return {};
      case Fault::kill:
        await_step();
        return kill_it();
      case Fault::stop_kill:
        await_step();
        kill(victim_, SIGSTOP);
        internal::sleep_for(kStopped);
        return kill_it();
      case Fault::stop:
        await_step();
        board_.happens();
        kill(victim_, SIGSTOP);
        await([&] { return board_.heard.load() == round_.part_size() - 1; });
        if (!round_.continues) return kill_it();
        kill(victim_, SIGCONT);
        return {};
      case Fault::kill_at_start:
        internal::sleep_for(kStartTakes * round_.delay);
        return kill_it();
      case Fault::exit:
        return ended();
      default:
        return {};
    }
  }

 private:
  template <class Condition>
  void await(Condition condition) {
    EXPECT_TRUE(eventually(condition, kRoundTakes));
  }
  /// In the midst of the step, or of one of the next.
  void await_step() {
    await([&] { return board_.steps[round_.victim].load() > round_.step; });
    internal::sleep_for(round_.delay);
  }
  void stop_for(std::chrono::milliseconds time) {
    kill(victim_, SIGSTOP);
    internal::sleep_for(time);
    kill(victim_, SIGCONT);
  }
  int kill_it() {
    board_.happens();
    kill(victim_, SIGKILL);
    return ended();
  }
  int ended() {
    const int status = wait_for(victim_);
    board_.over = true;
    return status;
  }

  const FaultRound& round_;
  FaultBoard& board_;
  const pid_t victim_;
};

void run_round(const FaultRound& round) {
  const MeetingPlace first, second;
  const Shared<FaultBoard> board;
  auto ranks = internal::testing::start_forked(
      round.world, [&](int rank) { FaultRank(round, *board, rank).run(first, second); });
  const auto status = Inflicted(round, *board, ranks).run();
  if (status) {
    EXPECT_EQ(*status, round.fault == Fault::exit ? 0 : SIGKILL);
    ranks.erase(ranks.begin() + round.victim);
  }
  internal::testing::report_hangs(ranks, kRoundTakes);
  for (const pid_t rank : ranks) {
    kill(rank, SIGKILL);  // That hangs; of others only the status is left.
    EXPECT_EQ(wait_for(rank), 0);
  }
}

std::vector<const char*> transports_of_hosts() {
  std::vector<const char*> names = transports_here();
  names.push_back("hosts");
  return names;
}

class RandomFaults : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, RandomFaults, ::testing::ValuesIn(transports_of_hosts()),
                         [](const auto& transport) { return std::string(transport.param); });

TEST_P(RandomFaults, AreHeardByAllOthersWhoGoOn) {
  const std::uint64_t first = 1 + static_cast<std::uint64_t>(GTEST_FLAG_GET(random_seed));
  const std::uint64_t rounds = count_option(runs_of(24));
  for (std::uint64_t seed = first; seed < first + rounds && !HasFailure(); ++seed) {
    const FaultRound round = draw_round(GetParam(), seed);
    SCOPED_TRACE(round.describe());
    run_round(round);
  }
}

}  // namespace
}  // namespace lockstep::testing
