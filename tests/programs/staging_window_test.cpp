// Windows of the staging area: large enough for their calls, and no larger than they have to be.
#include "collectives/programs/domain/staging_window.hpp"

#include "tests/programs/cases.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kArea = 2 << 20, kSegment = 256 << 10;

Shape shape_at(const Algorithm& row, int world, std::uint64_t count, std::size_t element) {
  Shape shape;
  shape.collective = row.collective;
  shape.world = world;
  shape.count = count;
  shape.segment = kSegment / element;
  shape.staging = kArea / 2 / element;
  return shape;
}

std::uint64_t end_in_staging(const Slice& slice) {
  return slice.space == Space::staging ? slice.offset + slice.count : 0;
}

/// Elements of anybody's staging area that a rank's program touches.
std::uint64_t used_staging(const Program& program) {
  std::uint64_t end = 0;
  for (const Slice& slice : program.slices) end = std::max(end, end_in_staging(slice));
  for (const Lane& lane : program.lanes) {
    for (const Step& step : lane.steps)
      end = std::max({end, end_in_staging(step.src), end_in_staging(step.dst)});
  }
  return end;
}

class StagedRow : public ::testing::TestWithParam<const Algorithm*> {};

std::vector<const Algorithm*> staged_rows() {
  std::vector<const Algorithm*> rows = every_row();
  std::erase_if(rows, [](const Algorithm* row) {
    return row->medium != Medium::domain_staged || has_counts(row->collective) || row->most_on_hosts < 64;
  });
  return rows;
}

TEST_P(StagedRow, PassesInNoMoreBlocksThanInTheWholeHalf) {
  const Algorithm& row = *GetParam();
  for (const int world : {1, 2, 3, 4, 5, 7, 8, 16, 33, 64}) {
    for (const std::size_t element : {1, 2, 4, 8}) {
      for (std::uint64_t count = 0; count * element <= kArea; count = count * 3 / 2 + 17) {
        Shape shape = shape_at(row, world, count, element);
        if (!row.supports(shape)) continue;
        const std::uint32_t phases = row.build(shape).phases;
        shape.staging = staging_window(shape, element, kArea);
        ASSERT_TRUE(row.supports(shape)) << name_of_case(shape);
        for (const int rank : {0, world - 1}) {
          shape.rank = rank;
          const Program program = row.build(shape);
          ASSERT_EQ(program.phases, phases) << name_of_case(shape);
          ASSERT_LE(used_staging(program), shape.staging) << name_of_case(shape);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, StagedRow, ::testing::ValuesIn(staged_rows()), row_test_name);

TEST(StagingWindow, SmallCallsMoveOnThroughTheirHalf) {
  const Algorithm& row = *staged_rows().front();
  for (const std::size_t bytes : {std::size_t{2} << 10, std::size_t{64} << 10, kSegment}) {
    const std::uint64_t window = staging_window(shape_at(row, 2, bytes / 4, 4), 4, kArea) * 4;
    EXPECT_GE(window, bytes);
    EXPECT_LE(window, bytes + (2 << 10));
  }
}

TEST(StagingWindow, TheSmallestMoveOnBetweenTwoRanksOnly) {
  const Algorithm& row = *staged_rows().front();
  const auto window = [&](int world, std::uint64_t bytes) {
    return staging_window(shape_at(row, world, bytes / 4, 4), 4, kArea) * 4;
  };
  EXPECT_LE(window(2, 256), 256 + (2 << 10));
  EXPECT_EQ(window(2, 252), kArea / 2);
  EXPECT_EQ(window(3, 512), kArea / 2);
}

}  // namespace
}  // namespace lockstep::internal
