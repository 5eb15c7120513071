// A rank that is killed while the group splits, at random moments: whoever is left hears of it by its number
// in the group that the error is of, whether in split(), or by the part that it has already.
#include <signal.h>

#include <atomic>
#include <random>

#include "tests/engine/process_group.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using internal::testing::report_hangs;
using internal::testing::Shared;
using internal::testing::start_forked;
using internal::testing::wait_for;
using internal::testing::wait_until;
using testing::MeetingPlace;
using testing::thrown_by;

constexpr int kWorld = 4;
constexpr std::chrono::seconds kRoundTakes(40);

/// Numbers of the rank that dies, by group.
struct Numbers {
  int in_whole;
  int in_part;
};

void expect_named(const Error& error, int number, const char* by) {
  EXPECT_EQ(error.code(), ErrorCode::peer_lost) << by << ": " << error.what();
  EXPECT_EQ(error.culprit(), number) << by << ": " << error.what();
  EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(number)), std::string::npos)
      << by << ": " << error.what();
}

/// Splits until a rank is lost. In each part ranks have other numbers than in the whole, and those others
/// than in the job.
void split_on_and_on(Communicator& whole, Numbers lost) {
  while (true) {
    std::optional<Communicator> part;
    try {
      part = whole.split(0, (whole.rank() + 1) % whole.size());
    } catch (const Error& error) {
      return expect_named(error, lost.in_whole, "split");
    }
    try {
      part->barrier();
    } catch (const Error& error) {
      expect_named(error, lost.in_part, "barrier");
      const Error later = thrown_by([&] { whole.barrier(); });
      expect_named(later, lost.in_whole, "barrier of the whole");
      return;
    }
  }
}

/// What carries the group, of one host or of two, which hear of a loss at their own times.
struct Layout {
  std::string transports;
  int hosts;
};

std::vector<Layout> layouts() {
  std::vector<Layout> all{{"auto", 2}};
  for (const char* const transports : testing::transports_here()) all.push_back({transports, 1});
  return all;
}

class Splits : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Splits, ::testing::ValuesIn(layouts()), [](const auto& layout) {
  return layout.param.transports + "_of_" + std::to_string(layout.param.hosts);
});

TEST_P(Splits, NameWhoWasKilledInTheirMidst) {
  std::mt19937_64 random(static_cast<std::uint64_t>(GTEST_FLAG_GET(random_seed)));
  for (int round = 0; round < static_cast<int>(testing::runs_of(16)) && !HasFailure(); ++round) {
    const int victim = static_cast<int>(random() % kWorld);
    const std::chrono::microseconds delay(random() % 30'000);
    SCOPED_TRACE("round " + std::to_string(round) + ", rank " + std::to_string(victim) + " after " +
                 std::to_string(delay.count()) + " us");
    MeetingPlace place;
    Shared<std::atomic<int>> ready;
    auto ranks = start_forked(kWorld, [&](int rank) {
      if (GetParam().hosts > 1) testing::live_on_host(rank % GetParam().hosts);
      Communicator job = place.join(rank, kWorld, GetParam().transports);
      Communicator whole = *job.split(0, -rank);
      const int in_whole = kWorld - 1 - victim;
      ++*ready;
      split_on_and_on(whole, {in_whole, (in_whole + 1) % kWorld});
    });
    wait_until([&] { return ready->load() == kWorld; });
    internal::sleep_for(delay);
    kill(ranks[static_cast<std::size_t>(victim)], SIGKILL);
    EXPECT_EQ(wait_for(ranks[static_cast<std::size_t>(victim)]), SIGKILL);
    ranks.erase(ranks.begin() + victim);
    report_hangs(ranks, kRoundTakes);
    for (const pid_t rank : ranks) {
      kill(rank, SIGKILL);  // That hangs; of others only the status is left.
      EXPECT_EQ(wait_for(rank), 0);
    }
  }
}

}  // namespace
}  // namespace lockstep
