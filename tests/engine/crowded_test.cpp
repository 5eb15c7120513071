// Two ranks to a core: who waits gives the core to the rank that it waits for, and no call takes a turn of
// the scheduler (4 ms), as ranks that spin would.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "lib/base/core_set.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/bounds.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTick(4);
constexpr int kMostCores = 2, kRanksPerCore = 2;
constexpr std::size_t kWarmUp = 100, kCalls = 1'000;

std::vector<int> cores_to_share() {
  const internal::CoreSet allowed = internal::allowed_cores();
  std::vector<int> cores;
  for (int core = 0; cores.size() < kMostCores && core < static_cast<int>(allowed.size()); ++core) {
    if (allowed[static_cast<std::size_t>(core)]) cores.push_back(core);
  }
  return cores;
}

void pin_to(int core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

std::vector<Clock::duration> times_of(Communicator& communicator, std::vector<float>& data) {
  std::vector<Clock::duration> times;
  for (std::size_t i = 0; i < kWarmUp + kCalls; ++i) {
    const auto start = Clock::now();
    communicator.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::max);
    if (i >= kWarmUp) times.push_back(Clock::now() - start);
  }
  std::sort(times.begin(), times.end());
  return times;
}

class Crowded : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Crowded, ::testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

TEST_P(Crowded, NoCallTakesATurnOfTheScheduler) {
  const std::vector<int> cores = cores_to_share();
  const int ranks = kRanksPerCore * static_cast<int>(cores.size());
  testing::MeetingPlace place;
  internal::testing::run_forked(ranks, [&](int rank) {
    pin_to(cores[static_cast<std::size_t>(rank) % cores.size()]);
    Communicator communicator = place.join(rank, ranks, GetParam());
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1024}}) {
      std::vector<float> data(bytes / sizeof(float), 1.0f);
      const auto times = times_of(communicator, data);
      // What else runs here takes turns too, now and then.
      const auto judged = times[kCalls * (testing::strict_bounds() ? 99 : 50) / 100];
      EXPECT_LT(judged, testing::allowed(kTick)) << bytes << " bytes, rank " << rank;
      if (rank > 0) continue;
      std::printf("%s, %d ranks on %zu cores, %zu bytes: median %.1f us, 99 %% up to %.1f us\n", GetParam(),
                  ranks, cores.size(), bytes,
                  std::chrono::duration<double, std::micro>(times[kCalls / 2]).count(),
                  std::chrono::duration<double, std::micro>(times[kCalls * 99 / 100]).count());
      std::fflush(stdout);
    }
    communicator.finalize();
  });
}

}  // namespace
}  // namespace lockstep
