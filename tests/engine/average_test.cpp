// Averages of types with a small range: no algorithm over links lets a sum overflow on its way where the
// average does not. Up to eight ranks the sums of one power of two are exact, and so are their averages.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/programs/program.hpp"
#include "lib/base/float16.hpp"
#include "tests/engine/algorithm_cases.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep::internal {
namespace {

struct SmallType {
  DataType type;
  std::size_t bytes;
  std::uint32_t largest;  ///< The largest power of two: twice as much is infinite, or NaN.
};
constexpr SmallType kSmallTypes[] = {{DataType::f16, 2, F16::from_float(0x1p15f)},
                                     {DataType::f8e4m3, 1, F8E4M3::from_float(0x1p8f)},
                                     {DataType::f8e5m2, 1, F8E5M2::from_float(0x1p15f)}};

std::vector<std::byte> filled(const SmallType& small, std::size_t elements, std::uint32_t bits) {
  std::vector<std::byte> result(elements * small.bytes);
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<std::byte>(bits >> (8 * (i % small.bytes)));
  return result;
}

/// All ranks give one number: it is their average.
void expect_average(Communicator& ranks, const Algorithm& row, const SmallType& small, bool in_place) {
  constexpr std::size_t kCount = 131;
  const auto n = static_cast<std::size_t>(ranks.size());
  const bool scatters = row.collective == Collective::reduce_scatter;
  const std::vector<std::byte> given = filled(small, scatters ? n * kCount : kCount, small.largest);
  std::vector<std::byte> input = given, output(in_place ? 0 : kCount * small.bytes);
  const std::size_t own = scatters ? static_cast<std::size_t>(ranks.rank()) * kCount * small.bytes : 0;
  std::byte* const to = in_place ? input.data() + own : output.data();
  CallOptions options;
  options.algorithm = row.name;
  switch (row.collective) {
    case Collective::all_reduce:
      ranks.all_reduce(input.data(), to, kCount, small.type, ReduceOp::avg, options);
      break;
    case Collective::reduce:
      ranks.reduce(input.data(), to, kCount, small.type, ReduceOp::avg, 0, options);
      break;
    default:
      ranks.reduce_scatter(input.data(), to, kCount, small.type, ReduceOp::avg, options);
  }
  const std::string what = text_of(row) + " of " + std::string(name_of(small.type));
  if (!in_place) {
    EXPECT_EQ(input, given) << what << " wrote to its input";
  }
  if (row.collective == Collective::reduce && ranks.rank() != 0) return;
  const std::vector<std::byte> result(to, to + kCount * small.bytes);
  EXPECT_EQ(result, filled(small, kCount, small.largest)) << what << " on " << n << " ranks";
}

class Average : public ::testing::TestWithParam<int> {};

TEST_P(Average, OfTheLargestNumbersIsTheLargestNumber) {
  testing::on_ranks(GetParam(), "tcp", [](Communicator& ranks) {
    for (const Algorithm& row : algorithms()) {
      const bool here = row.medium == Medium::links &&
                        (row.collective == Collective::all_reduce || row.collective == Collective::reduce ||
                         row.collective == Collective::reduce_scatter);
      const CollectiveCase c{.collective = row.collective, .world = ranks.size(), .count = 131};
      if (!here || !row.supports(shape_of(c, ranks.rank()))) continue;
      for (const SmallType& small : kSmallTypes) {
        expect_average(ranks, row, small, true);
        expect_average(ranks, row, small, false);
      }
    }
    ranks.finalize();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Average, ::testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace lockstep::internal
