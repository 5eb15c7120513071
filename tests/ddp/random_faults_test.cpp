// Random training runs among real processes, in most of which one rank makes a mistake, is stopped, leaves or
// dies at a random moment. Every rank's wait ends, with an error that names the culprit; gradients are what
// the headers promise; and the ranks go on: in the same group, or those that are left in a new one, sharded
// training from its last checkpoint.
// `ddp_random_faults_test --operations N` does N rounds, from seed M on with `--gtest_random_seed=M`.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>

#include "tests/ddp/fault_run.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/host_of_rank.hpp"

namespace lockstep {
namespace {

using internal::testing::Board;
using testing::MeetingPlace;

std::string describe(const Round& r) {
  return "seed " + std::to_string(r.seed) + ": " + std::to_string(r.ranks) + " ranks, " + r.transports +
         (r.two_hosts ? " on two hosts" : "") + ", fault " + std::to_string(static_cast<int>(r.fault)) +
         " of rank " + std::to_string(r.culprit) + " in step " + std::to_string(r.fault_step) + " at mark " +
         std::to_string(r.fault_mark) + ", zero " + std::to_string(r.zero) + ", hook \"" + r.hook + "\"";
}

struct Places {
  MeetingPlace first, second;
  internal::TemporaryDirectory checkpoints;
  std::string checkpoint() const { return checkpoints.path() + "/last"; }
};

/// Children of ranks, which live on when these die.
struct Loaders {
  std::atomic<pid_t> of[Board::kRanks];

  void start(int rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      of[rank] = child;
      return;
    }
    ::alarm(internal::testing::child_seconds());
    for (;;) ::pause();
  }
  void end() {
    for (const auto& child : of) {
      if (child > 0) ::kill(child, SIGKILL);
    }
  }
};

void expect_right_error(const Round& r, const Error& error) {
  const std::string what = std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  if (ends_process(r.fault)) {
    EXPECT_EQ(error.code(), ErrorCode::peer_lost) << what;
  } else if (r.fault == Fault::skipped || r.fault == Fault::swapped) {
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << what;
    return;  // Two ranks were compared, and neither is to blame before the other.
  }
  EXPECT_TRUE(ends_group(r.fault)) << what;
  EXPECT_EQ(error.culprit(), r.culprit) << what;
}

/// Whether the round ended the group of this rank.
template <typename Run>
bool train(Run& run, Communicator& communicator, const Round& r) {
  constexpr std::size_t kEndless = 1'000'000;
  try {
    run.construct();
    run.run(r.fault == Fault::killed_at_any_time ? kEndless : Round::kSteps);
    run.destroy();
    communicator.finalize();
    return false;
  } catch (const Unwound&) {
    return true;
  } catch (const Error& error) {
    expect_right_error(r, error);
    run.expect_untouched();
    return true;
  }
}

template <typename Trainer>
void live(const Round& r, int rank, const Places& places, Board& board, Loaders& loaders) {
  std::optional<Communicator> communicator = places.first.join(rank, r.ranks, r.transports);
  if (r.loads) loaders.start(rank);
  std::optional<FaultRun<Trainer>> run;
  run.emplace(*communicator, r, places.checkpoint());
  board.post(rank, "begun");
  const bool ended = train(*run, *communicator, r);
  EXPECT_EQ(ended, ends_group(r.fault));
  if (!ended) return;
  const auto saved = run->saved();
  // What this rank leaves ends its peers' steps; else the old group may live beside the new one.
  const bool leaves =
      r.fault == Fault::left || r.fault == Fault::unwound || r.hook == "all_reduce" || r.seed % 2 == 0;
  const auto leave = [&] { run.reset(), communicator.reset(); };
  if (leaves) leave();
  const bool dead = ends_process(r.fault);
  const int left = r.ranks - (dead ? 1 : 0);
  const MeetingPlace& place = dead || r.seed % 3 == 0 ? places.second : places.first;
  Communicator next = place.join(rank - (dead && rank > r.culprit ? 1 : 0), left, r.transports);
  FaultRun<Trainer> again(next, r.in_peace(left), places.checkpoint());
  again.construct();
  again.restore(saved);
  if (!leaves) run->expect_untouched();
  leave();
  again.run(2);
  again.destroy();
  next.finalize();
}

/// A stopped child is continued after a while; one that is killed as the round has it has ended well.
void see_to_its_end(const Round& r, int rank, pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status)) {
    internal::sleep_for(std::chrono::milliseconds(r.dice(8, 0, 0) % 30));
    ::kill(child, SIGCONT);
  }
  const bool as_meant = ends_process(r.fault) && rank == r.culprit;
  EXPECT_EQ(status, as_meant ? SIGKILL : 0) << "rank " << rank;
}

void play(const Round& r) {
  SCOPED_TRACE(describe(r));
  const Places places;
  internal::testing::Shared<Board> board;
  internal::testing::Shared<Loaders> loaders;
  const auto children = internal::testing::start_forked(r.ranks, [&](int rank) {
    SCOPED_TRACE(describe(r));
    if (r.two_hosts) testing::live_on_host(rank % 2);
    r.zero > 0 ? live<ShardedOptimizer>(r, rank, places, *board, *loaders)
               : live<Reducer>(r, rank, places, *board, *loaders);
  });
  if (r.fault == Fault::killed_at_any_time) {
    for (int rank = 0; rank < r.ranks; ++rank) board->read(rank);
    internal::sleep_for(std::chrono::microseconds(r.dice(9, 0, 0) % 20'000));
    ::kill(children[static_cast<std::size_t>(r.culprit)], SIGKILL);
  }
  if (r.fault == Fault::paused) see_to_its_end(r, r.culprit, children[static_cast<std::size_t>(r.culprit)]);
  internal::testing::report_hangs(children, internal::testing::hang_after());
  for (int rank = 0; rank < r.ranks; ++rank) {
    if (r.fault != Fault::paused || rank != r.culprit)
      see_to_its_end(r, rank, children[static_cast<std::size_t>(rank)]);
  }
  loaders->end();
}

TEST(RandomFaults, EndInErrorsThatNameTheCulpritAndTrainingGoesOn) {
  const auto first = static_cast<unsigned>(GTEST_FLAG_GET(random_seed));
  const auto rounds = static_cast<unsigned>(testing::count_option(20));
  for (unsigned n = 0; n < rounds && !HasFailure(); ++n) play(random_round(first + n));
}

}  // namespace
}  // namespace lockstep
