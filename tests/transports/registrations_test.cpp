// Which memory stays registered with a fabric.
#include "transports/fabric/registrations.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "lockstep/memory.hpp"

namespace lockstep::internal {
namespace {

struct Region {};

class KeptRegistrations : public ::testing::Test {
 protected:
  static std::byte* block() { return static_cast<std::byte*>(lockstep::allocate(2 * page_size())); }
  /// Makes room for `other`, and so looks at what is kept.
  void use(const std::byte* other) { ASSERT_NE(registrations_.find(other, 1), nullptr); }

  std::byte* const first_ = block();
  std::byte* const other_ = block();
  Registrations<Region> registrations_{
      [](void*, std::size_t) -> Result<std::shared_ptr<Region>> { return std::make_shared<Region>(); }};
  std::weak_ptr<Region> region_ = registrations_.find(first_, 1);
};

TEST_F(KeptRegistrations, LastWhileTheirBlockDoes) {
  use(other_);
  EXPECT_EQ(registrations_.find(first_ + 1, 1), region_.lock());
  lockstep::free(first_);
  use(other_ + page_size());
  EXPECT_TRUE(region_.expired());
}

TEST_F(KeptRegistrations, EndWithMemoryThatWasMadePrivate) {
  ASSERT_TRUE(make_private(first_, 1).ok());
  use(other_);
  EXPECT_TRUE(region_.expired());
}

}  // namespace
}  // namespace lockstep::internal
