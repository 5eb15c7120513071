// Averages of types with a small range: no algorithm lets a sum overflow on its way where the average does
// not. Up to eight ranks the sums of one power of two are exact, and so are their averages.
#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "collectives/engine/limits.hpp"
#include "collectives/programs/program.hpp"
#include "tests/engine/algorithm_cases.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/small_types.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kCount = 131;

/// All ranks give one number: it is their average.
void expect_average(Communicator& ranks, const Algorithm& row, const SmallType& small, std::size_t count,
                    bool in_place) {
  const auto n = static_cast<std::size_t>(ranks.size());
  const bool scatters = row.collective == Collective::reduce_scatter;
  const std::vector<std::byte> given = largest_numbers(small, scatters ? n * count : count);
  std::vector<std::byte> input = given, output(in_place ? 0 : count * small.bytes);
  const std::size_t own = scatters ? static_cast<std::size_t>(ranks.rank()) * count * small.bytes : 0;
  std::byte* const to = in_place ? input.data() + own : output.data();
  CallOptions options;
  options.algorithm = row.name;
  switch (row.collective) {
    case Collective::all_reduce:
      ranks.all_reduce(input.data(), to, count, small.type, ReduceOp::avg, options);
      break;
    case Collective::reduce:
      ranks.reduce(input.data(), to, count, small.type, ReduceOp::avg, 0, options);
      break;
    default:
      ranks.reduce_scatter(input.data(), to, count, small.type, ReduceOp::avg, options);
  }
  const std::string what = text_of(row) + " of " + std::string(name_of(small.type));
  if (!in_place) {
    EXPECT_EQ(input, given) << what << " wrote to its input";
  }
  if (row.collective == Collective::reduce && ranks.rank() != 0) return;
  const std::vector<std::byte> result(to, to + count * small.bytes);
  EXPECT_EQ(result, largest_numbers(small, count)) << what << " on " << n << " ranks";
}

bool reduces(const Algorithm& row) {
  return row.collective == Collective::all_reduce || row.collective == Collective::reduce ||
         row.collective == Collective::reduce_scatter;
}

/// By all algorithms of the transport: over links, or in shared memory.
void expect_averages(Communicator& ranks, bool over_links, std::span<const SmallType> types = kSmallTypes,
                     std::size_t count = kCount) {
  for (const Algorithm& row : algorithms()) {
    const CollectiveCase c{.collective = row.collective, .world = ranks.size(), .count = count};
    const bool here = (row.medium == Medium::links) == over_links && reduces(row);
    if (!here || !row.supports(shape_of(c, ranks.rank()))) continue;
    for (const SmallType& small : types) {
      expect_average(ranks, row, small, count, true);
      expect_average(ranks, row, small, count, false);
    }
  }
  ranks.finalize();
}

class Average : public ::testing::TestWithParam<int> {};
class AverageInMemory : public ::testing::TestWithParam<int> {};

TEST_P(Average, OfTheLargestNumbersIsTheLargestNumber) {
  testing::on_ranks(GetParam(), "tcp", [](Communicator& ranks) { expect_averages(ranks, true); });
}
TEST_P(AverageInMemory, OfTheLargestNumbersIsTheLargestNumber) {
  testing::on_ranks(GetParam(), "shm", [](Communicator& ranks) { expect_averages(ranks, false); });
}

/// Which are scaled in several parts.
TEST_P(Average, OfLongInputsIsRightToo) {
  const std::size_t long_count = kReduceBlockBytes / kSmallTypes[0].bytes + kCount;
  testing::on_ranks(GetParam(), "tcp", [&](Communicator& ranks) {
    expect_averages(ranks, true, std::span(kSmallTypes).first(1), long_count);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Average, ::testing::Values(1, 2, 3, 4, 5, 8));
INSTANTIATE_TEST_SUITE_P(Ranks, AverageInMemory, ::testing::Values(2, 3, 4, 5, 8));

/// Calls that name no algorithm, so that the second is like the first; the model's rule names one.
TEST(AverageByRule, IsTheSameWhenTheCallIsRepeated) {
  const TemporaryDirectory files;
  const std::string model =
      R"({"schema": "lockstep-tuning", "version": 1, "overrides": "all_reduce:*=pull_ring"})";
  ::setenv("LOCKSTEP_TUNING", files.write("rule.json", model).c_str(), 1);
  testing::on_ranks(3, "shm", [](Communicator& ranks) {
    const SmallType& small = kSmallTypes[0];
    const std::vector<std::byte> given = largest_numbers(small, 5000);
    for (int turn = 0; turn < 4; ++turn) {
      std::vector<std::byte> data = given;
      ranks.all_reduce(data.data(), data.data(), 5000, small.type, ReduceOp::avg);
      EXPECT_EQ(data, given) << "turn " << turn;
    }
    ranks.finalize();
  });
  ::unsetenv("LOCKSTEP_TUNING");
}

}  // namespace
}  // namespace lockstep::internal
