// What the cache of programs keeps, and that what it has let go of is built again.
#include <gtest/gtest.h>

#include <memory>

#include "collectives/engine/limits.hpp"
#include "collectives/engine/prepared_program.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

class Programs : public ::testing::Test {
 protected:
  explicit Programs(int world = 2) {
    shape_.collective = Collective::all_reduce;
    shape_.world = world;
    shape_.segment = 1;
  }
  /// Of a call on so many elements; the more, the longer.
  std::shared_ptr<const PreparedProgram> get(std::uint64_t count) {
    shape_.count = count;
    return cache_.get(ring_, shape_);
  }

  const Algorithm& ring_ = *testing::must(find_algorithm(Collective::all_reduce, Medium::links, "ring"));
  Shape shape_;
  ProgramCache cache_;
};

TEST_F(Programs, ThatWereNotUsedForLongestGoFirstAndAreBuiltAgain) {
  const std::weak_ptr<const PreparedProgram> first = get(1), second = get(2);
  shape_.segment = 1 << 20;  // Short ones from now on.
  for (std::uint64_t count = 3; count <= kMaxCachedPrograms; ++count) get(count);
  shape_.segment = 1;
  EXPECT_EQ(get(1), first.lock());
  EXPECT_FALSE(second.expired());
  get(kMaxCachedPrograms + 1);
  EXPECT_TRUE(second.expired());
  EXPECT_EQ(get(1), first.lock());
  const auto again = get(2);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(get(2), again);
  EXPECT_EQ(again->program.lanes.size(), get(1)->program.lanes.size());
}

TEST_F(Programs, TakeNoMoreMemoryThanTheyMay) {
  const std::uint64_t kLong = 4'000;
  const std::weak_ptr<const PreparedProgram> first = get(kLong);
  std::size_t bytes = first.lock()->bytes;
  std::uint64_t count = kLong;
  while (bytes <= kMaxCachedProgramBytes) {
    EXPECT_FALSE(first.expired());
    bytes += get(++count)->bytes;
  }
  EXPECT_TRUE(first.expired());
  EXPECT_LT(count - kLong, kMaxCachedPrograms) << "it is the number of programs that was too large";
}

}  // namespace
}  // namespace lockstep::internal
