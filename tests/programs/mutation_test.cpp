// The verifier's own test: every mutant of every program of the table is found, or is equivalent by an
// argument made without it (equivalent_mutants.cpp).
#include <cstdio>

#include "tests/programs/cases.hpp"
#include "tests/programs/mutants.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::internal {
namespace {

constexpr int kLargestWorld = lockstep::testing::kSanitized ? 4 : 6;

class Mutation : public ::testing::TestWithParam<const Algorithm*> {};

bool found(ProgramSet set) {
  if (!verify(set).empty()) return true;
  set.in_place = true;
  return !verify(set).empty();
}

TEST_P(Mutation, EveryMutantIsFoundOrEquivalent) {
  const Algorithm& row = *GetParam();
  std::size_t mutants = 0, equivalent = 0;
  for (int world = 2; world <= kLargestWorld; ++world) {
    // Enough for several segments, and for staging slots to be used again.
    const std::uint64_t pieces = row.medium == Medium::links && row.name != "ring" ? 2 : 6;
    const Size size{(pieces == 2 ? 6 : 15) * static_cast<std::uint64_t>(world) + 1, pieces};
    const int root = is_rooted(row.collective) ? 1 : 0;
    const Shape shape = shape_of(row, world, root, size.count, size.pieces, true);
    ASSERT_TRUE(row.supports(shape));
    const ProgramSet original = build_all(row, shape);
    ASSERT_EQ(verify_algorithm(row, shape), "");
    ProgramSet set = original;
    for_each_mutant(set, [&](const Mutant& mutant, const ProgramSet& mutated) {
      ++mutants;
      if (found(mutated)) return;
      ++equivalent;
      EXPECT_NE(why_equivalent(original, mutant), "") << "world " << world << ": not found: " << mutant.what;
    });
    for_each_shared_mutant(set, [&](const std::string& what, const ProgramSet& mutated) {
      ++mutants;
      EXPECT_TRUE(found(mutated)) << "world " << world << ": not found: " << what;
    });
  }
  std::printf("%zu mutants, of which %zu are equivalent\n", mutants, equivalent);
  EXPECT_GT(mutants, equivalent);
}

// The parts of composed programs are mutated alone; what joins them waits for more than it must.
INSTANTIATE_TEST_SUITE_P(Table, Mutation, ::testing::ValuesIn(rows_of_one_part()), row_test_name);

}  // namespace
}  // namespace lockstep::internal
