// Random operations on devices, many in flight on several streams at once: collectives of all types,
// operators, sizes, roots and forms, messages one by one and in batches, graphs that are captured and
// replayed between calls, on memory that is private, registered or a window. When a rank comes, and what it
// may choose for itself, differs among the ranks. Every result is compared with the reference bit for bit.
//
// `TEST_RUN=device_sync device_random_test --operations 100000` does more of them, and
// `--gtest_random_seed=2` others.
#include <gtest/gtest.h>

#include "lib/base/threads.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/device/communicator/random_device_rank.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::MeetingPlace;

const lockstep::testing::DeviceRun kRun(lockstep::testing::test_run("host_sync"));
constexpr std::uint64_t kOperations = 300;

void run_operations(RandomDeviceRank& rank, std::uint64_t operations) {
  EXPECT_EQ(name_of(rank.communicator().mode()), kRun.mode) << rank.communicator().describe();
  for (int round = 1; rank.done() < operations; ++round) {
    rank.run_round();
    if (round % 32 == 0) rank.register_again();
  }
  rank.communicator().finalize();
  rank.host().finalize();
}

/// Of each rank its host.
using Layout = std::vector<int>;

class DeviceRandom : public ::testing::TestWithParam<Layout> {};

TEST_P(DeviceRandom, OperationsAreRight) {
  const Layout& hosts = GetParam();
  const auto world = static_cast<int>(hosts.size());
  const bool several_hosts = hosts.back() != 0;
  const std::uint64_t seed = 2026 + static_cast<std::uint64_t>(::testing::GTEST_FLAG(random_seed));
  lockstep::testing::use_host_backend(kRun.mode.c_str());
  ::setenv("LOCKSTEP_DEVICE_STAGING", seed % 2 == 0 ? "96K" : "2M", 1);
  const MeetingPlace place;
  const std::uint64_t operations = lockstep::testing::count_option(kOperations);
  const auto run_rank = [&](int rank) {
    try {
      RandomDeviceRank self(rank, world, place, several_hosts, seed);
      run_operations(self, operations);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << ", rank " << rank << ": " << error.what();
    }
  };
  testing::run_forked(kRun.in_threads ? 1 : world, [&](int rank) {
    if (operations > kOperations) alarm(0);  // Their number bounds the time.
    lockstep::testing::live_on_host(hosts[static_cast<std::size_t>(rank)]);
    if (!kRun.in_threads) return run_rank(rank);
    on_threads(hosts.size(), [&](std::size_t thread) { run_rank(static_cast<int>(thread)); });
  });
}

std::vector<Layout> layouts() {
  std::vector<Layout> all{{0, 0}, {0, 0, 0}, {0, 0, 0, 0}};
  if (!kRun.in_threads) all.insert(all.end(), {{0, 1}, {0, 0, 1}, {0, 0, 1, 1}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, DeviceRandom, ::testing::ValuesIn(layouts()));

}  // namespace
}  // namespace lockstep::internal
