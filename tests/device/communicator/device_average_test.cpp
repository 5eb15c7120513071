// Averages of types with a small range on devices: no program lets a sum overflow on its way where the
// average does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/device/communicator/device_world.hpp"
#include "tests/support/small_types.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::SmallType;
using testing::DeviceRank;
using testing::run_on_devices;

const char* const kMode = testing::test_run("stream_sync");
constexpr std::size_t kCount = 131, kArena = 4096;

/// All ranks give one number: it is their average.
void expect_average(DeviceRank& self, const char* algorithm, const SmallType& small, bool in_place) {
  DeviceArena arena(kArena, self.device());
  const std::vector<std::byte> given = internal::largest_numbers(small, kCount);
  std::copy(given.begin(), given.end(), arena.host().begin());
  arena.upload(kArena, self.stream);
  const std::size_t to = in_place ? 0 : kArena / 2;
  DeviceCallOptions options;
  options.algorithm = algorithm;
  self.communicator.all_reduce(arena.device(), arena.device() + to, kCount, small.type, ReduceOp::avg,
                               self.stream, options);
  arena.download(kArena, self.stream);
  self.synchronize();
  const auto result = arena.host().subspan(to, given.size());
  EXPECT_TRUE(std::equal(given.begin(), given.end(), result.begin()))
      << algorithm << " of " << name_of(small.type) << " on " << self.size() << " ranks";
}

TEST(DeviceAverage, OfTheLargestNumbersIsTheLargestNumber) {
  for (const int ranks : {2, 3, 5}) {
    run_on_devices(ranks, kMode, [](DeviceRank& self) {
      for (const char* algorithm : {"", "one_shot", "two_shot", "pull_ring"}) {
        for (const SmallType& small : internal::kSmallTypes) {
          expect_average(self, algorithm, small, true);
          expect_average(self, algorithm, small, false);
        }
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
