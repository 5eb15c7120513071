// Which memory stays registered with a fabric.
#include "transports/fabric/registrations.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <vector>

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

TEST_F(KeptRegistrations, HoldWholePagesAndNoMore) {
  const auto first_page = region_.lock();
  EXPECT_EQ(registrations_.find(first_, page_size()), first_page);
  EXPECT_NE(registrations_.find(first_, page_size() + 1), first_page);
  EXPECT_NE(registrations_.find(first_ + page_size(), 1), first_page);
}

TEST_F(KeptRegistrations, TheOneThatWasNotUsedForLongestMakesRoom) {
  std::vector<std::byte*> blocks;
  for (std::size_t i = 0; i + 1 < kKeptRegistrations; ++i) blocks.push_back(block());
  for (const std::byte* one : blocks) use(one);  // Now there is room for no more.
  EXPECT_FALSE(region_.expired());
  use(first_);
  const std::weak_ptr<Region> oldest = registrations_.find(blocks[1], 1);
  use(blocks[0]);
  for (std::size_t i = 2; i < blocks.size(); ++i) use(blocks[i]);
  use(other_);
  EXPECT_TRUE(region_.expired());
  EXPECT_FALSE(oldest.expired());
  use(first_);
  EXPECT_TRUE(oldest.expired());
  for (std::byte* one : blocks) lockstep::free(one);
}

TEST(OwnRegistrations, HoldTheirMemoryAndNoMore) {
  Registrations<Region> registrations(
      [](void*, std::size_t) -> Result<std::shared_ptr<Region>> { return std::make_shared<Region>(); });
  auto memory = registrations.allocate(page_size());
  ASSERT_TRUE(memory.ok());
  EXPECT_NE(registrations.find(memory->data() + 1, page_size() - 1), nullptr);
  EXPECT_EQ(registrations.find(memory->data() + 1, page_size()), nullptr);
}

// A device would go on with pages that are nobody's any more.
TEST_F(KeptRegistrations, AreNotUsedForAnotherSegmentAtTheSameAddress) {
  void* const memory = mmap(nullptr, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  lockstep::register_buffer(memory, page_size());
  const auto before = registrations_.find(memory, 1);
  lockstep::deregister_buffer(memory);
  EXPECT_EQ(registrations_.find(memory, 1), nullptr);
  lockstep::register_buffer(memory, page_size());
  const auto now = registrations_.find(memory, 1);
  EXPECT_NE(now, nullptr);
  EXPECT_NE(now, before);
  lockstep::deregister_buffer(memory);
  munmap(memory, page_size());
}

TEST_F(KeptRegistrations, EndWithMemoryThatWasMadePrivate) {
  ASSERT_TRUE(make_private(first_, 1).ok());
  use(other_);
  EXPECT_TRUE(region_.expired());
}

}  // namespace
}  // namespace lockstep::internal
