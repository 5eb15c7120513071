// The table: names, look-up, and the listing of a program.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tests/programs/cases.hpp"
#include "tests/programs/uses.hpp"

namespace lockstep::internal {
namespace {

TEST(Table, NamesAreUniquePerCollectiveAndMedium) {
  std::set<std::tuple<Collective, Medium, std::string_view>> seen;
  for (const Algorithm& row : algorithms()) {
    EXPECT_TRUE(seen.insert({row.collective, row.medium, row.name}).second) << row.name;
    EXPECT_FALSE(row.description.empty()) << row.name;
    const auto found = find_algorithm(row.collective, row.medium, row.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found.value(), &row);
  }
}

TEST(Table, EveryCollectiveHasAnAlgorithmOverLinks) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    bool found = false;
    for (const Algorithm& row : algorithms()) {
      found = found || (row.collective == collective && row.medium == Medium::links);
    }
    EXPECT_TRUE(found) << name_of(collective);
  }
}

/// Whether every step of the programs of three ranks is `allowed`, with what it uses.
template <class Allowed>
bool each_step_is(const Algorithm& row, Allowed allowed) {
  for (int rank = 0; rank < 3; ++rank) {
    Shape shape = shape_of(row, 3, 0, 200, 1);
    shape.rank = rank;
    const Program program = row.build(shape);
    for (const Step& step : program.lanes.front().steps) {
      if (!allowed(step, uses_of(program, step))) return false;
    }
  }
  return true;
}
bool is_own(const Slice& slice) { return slice.member == kSelf; }

TEST(Table, WhatOnlyReadsWritesToNoMember) {
  for (const Algorithm& row : algorithms()) {
    if (!reaches_buffers(row.medium)) continue;
    const bool reads = each_step_is(row, [](const Step&, const Uses& uses) {
      return std::all_of(uses.writes.begin(), uses.writes.end(), is_own) &&
             std::all_of(uses.reads.begin(), uses.reads.end(),
                         [](const Slice& slice) { return is_own(slice) || slice.space == Space::input; });
    });
    EXPECT_EQ(reads, row.only_reads) << name_of_row(row);
  }
}

TEST(Table, WhatIsPulledIsCopied) {
  for (const Algorithm& row : algorithms()) {
    if (row.medium != Medium::domain_pulled) continue;
    EXPECT_TRUE(row.only_reads) << name_of_row(row);
    EXPECT_TRUE(each_step_is(row, [](const Step& step, const Uses& uses) {
      return step.kind == StepKind::copy || std::all_of(uses.reads.begin(), uses.reads.end(), is_own);
    })) << name_of_row(row);
  }
}

TEST(Table, WhoStoresPartialSumsInADomainSaysSo) {
  for (const Algorithm& row : algorithms()) {
    if (row.medium == Medium::links) continue;
    const Program program = row.build(shape_of(row, 3, 0, 200, 1));
    const auto& steps = program.lanes.front().steps;
    const bool stores = std::any_of(steps.begin(), steps.end(), [](const Step& step) {
      return step.kind == StepKind::reduce && step.operand_count > 1 && !step.finish;
    });
    EXPECT_EQ(row.stores_partial_sums, stores) << name_of_row(row);
  }
}

TEST(Table, AMisspeltNameIsToldTheNearestOne) {
  const auto found = find_algorithm(Collective::all_reduce, Medium::links, "rign");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().code(), ErrorCode::invalid_argument);
  EXPECT_NE(found.status().message().find("\"rign\" is unknown"), std::string::npos)
      << found.status().message();
  EXPECT_NE(found.status().message().find("did you mean ring?"), std::string::npos)
      << found.status().message();
}

TEST(Table, ANameOfAnotherCollectiveSaysSo) {
  const auto found = find_algorithm(Collective::all_reduce, Medium::links, "binomial");
  ASSERT_FALSE(found.ok());
  const std::string& message = found.status().message();
  EXPECT_NE(message.find("does not exist for all_reduce over links; all_reduce over links has ring, direct"),
            std::string::npos)
      << message;
}

TEST(Listing, ShowsOneLineAStep) {
  Shape shape;
  shape.collective = Collective::broadcast;
  shape.world = 2;
  shape.count = 8;
  const auto binomial = find_algorithm(Collective::broadcast, Medium::links, "binomial");
  ASSERT_TRUE(binomial.ok());
  EXPECT_EQ(to_string(binomial.value()->build(shape)),
            "scratch 0, phases 0\nlane 0 step 0: send input[0,8) to 1\n");
  shape.rank = 1;
  EXPECT_EQ(to_string(binomial.value()->build(shape)),
            "scratch 0, phases 0\nlane 1 step 0: recv output[0,8) from 0\n");
}

}  // namespace
}  // namespace lockstep::internal
