// Registered memory inside one process.
#include "lockstep/memory.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/memory/descriptor_service.hpp"
#include "lib/memory/limits.hpp"
#include "lib/memory/mapping.hpp"
#include "lib/memory/segment.hpp"
#include "lockstep/error.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::internal {
namespace {

struct Freed {
  void operator()(void* pointer) const { lockstep::free(pointer); }
};
using Block = std::unique_ptr<std::byte, Freed>;
Block make(std::size_t bytes) { return Block(static_cast<std::byte*>(lockstep::allocate(bytes))); }

bool all(const std::byte* data, std::size_t bytes, int value) {
  for (std::size_t i = 0; i < bytes; ++i) {
    if (data[i] != static_cast<std::byte>(value)) return false;
  }
  return true;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Mappings of our memory (each has its own line).
std::size_t our_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("/memfd:lockstep") != std::string::npos;
  return count;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A second mapping of a segment, as a peer would have it.
Mapping peer_view(const SegmentRef& ref, std::size_t bytes) {
  auto service = descriptor_service_name();
  EXPECT_TRUE(service.ok()) << service.status().message();
  auto descriptors = fetch_descriptors(*service, segment_key(ref.segment), IfAbsent::fail, 5000);
  EXPECT_TRUE(descriptors.ok()) << descriptors.status().message();
  auto mapping = Mapping::map(descriptors->front(), bytes);
  EXPECT_TRUE(mapping.ok()) << mapping.status().message();
  return std::move(*mapping);
}

TEST(Allocate, GivesZeroedPageAlignedMemory) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{100'001}}) {
    const Block block = make(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.get()) % page_size(), 0u);
    EXPECT_TRUE(all(block.get(), bytes, 0));
  }
}

TEST(Allocate, ReusedMemoryIsZeroedAgain) {
  const std::size_t bytes = 5 * page_size();
  std::byte* first = make(bytes).release();
  const auto before = find_segment(first, bytes);
  std::memset(first, 7, bytes);
  lockstep::free(first);
  EXPECT_FALSE(is_registered(first, 1));
  const Block again = make(bytes);
  EXPECT_EQ(again.get(), first);
  EXPECT_TRUE(all(again.get(), bytes, 0));
  EXPECT_EQ(find_segment(again.get(), bytes)->segment, before->segment);
}

TEST(Allocate, RefusesNothingAndTheImpossible) {
  EXPECT_NE(error_of([] { (void)lockstep::allocate(0); }).find("allocate at least 1"), std::string::npos);
  for (const std::size_t bytes :
       {SIZE_MAX, std::size_t{1} << 63, std::size_t{1} << 60, std::size_t{1} << 46}) {
    const Error error = lockstep::testing::thrown_by([&] { (void)lockstep::allocate(bytes); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << bytes << " bytes: " << error.what();
  }
}

TEST(Allocate, FreeOfAStrangerAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // A plain forked child may not use the library at all.
  int local = 0;
  EXPECT_DEATH(lockstep::free(&local), "not a live block");
}

TEST(Allocate, TenThousandLeaveNothingBehind) {
  make(1);
  const std::size_t descriptors = open_descriptors(), mappings = our_mappings();
  for (std::size_t i = 0; i < 10'000; ++i) make(1 + i % 3 * page_size());
  for (int i = 0; i < 3; ++i) make(kReuseBytes + 1);  // Larger than what is kept: these go back at once.
  EXPECT_LE(open_descriptors(), descriptors + 3);
  EXPECT_LE(our_mappings(), mappings + 3);
}

TEST(Allocate, KeepsAtMostItsBound) {
  const std::size_t mappings = our_mappings();
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < 12; ++i) blocks.push_back(make(kReuseBytes / 8 + i * page_size()));
  blocks.clear();
  EXPECT_LE(our_mappings(), mappings + 8);
}

TEST(Allocate, TheLargestBlockThatIsKeptIs) {
  const std::uint64_t segment = find_segment(make(kReuseBytes).get(), 1)->segment;
  EXPECT_EQ(find_segment(make(kReuseBytes).get(), 1)->segment, segment);
}

TEST(Allocate, ABlockTooLargeToKeepPushesNothingOut) {
  const std::size_t bytes = 7 * page_size();
  const std::uint64_t segment = find_segment(make(bytes).get(), bytes)->segment;
  make(kReuseBytes + 1);
  const Block again = make(bytes);
  EXPECT_EQ(find_segment(again.get(), bytes)->segment, segment);
}

// Its owner could make it shorter, and end with a signal whoever looks at what was there.
TEST(PeersMemory, IsNotMappedWhereItMayShrinkOrIsTooShort) {
  const Fd open_ended(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(open_ended.get(), static_cast<off_t>(page_size())), 0);
  EXPECT_EQ(Mapping::map(open_ended, page_size()).status().code(), ErrorCode::internal);
  const auto sealed = make_memory_fd("test", page_size());
  ASSERT_TRUE(sealed.ok());
  EXPECT_TRUE(Mapping::map(sealed.value(), page_size()).ok());
  EXPECT_EQ(Mapping::map(sealed.value(), page_size() + 1).status().code(), ErrorCode::internal);
}

TEST(FindSegment, KnowsEveryByteAndNoOther) {
  const std::size_t bytes = 3 * page_size();
  const Block block = make(bytes), other = make(bytes);
  const auto whole = find_segment(block.get(), bytes);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->owner, process_token());
  EXPECT_EQ(whole->offset, 0u);
  const auto last = find_segment(block.get() + bytes - 1, 1);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->segment, whole->segment);
  EXPECT_EQ(last->offset, bytes - 1);
  EXPECT_NE(find_segment(other.get(), 1)->segment, whole->segment);
  EXPECT_FALSE(find_segment(block.get(), bytes + 1));
  EXPECT_FALSE(find_segment(block.get() + bytes - 1, 2));
  EXPECT_FALSE(find_segment(&bytes, sizeof bytes));
  EXPECT_FALSE(find_segment(nullptr, 0));
}

TEST(FindSegment, OwnAddressIsTheInverse) {
  const Block block = make(page_size());
  SegmentRef ref = *find_segment(block.get() + 40, 8);
  EXPECT_EQ(own_address(ref, 8), block.get() + 40);
  EXPECT_EQ(own_address(ref, page_size()), nullptr);
  ref.segment += 1;
  EXPECT_EQ(own_address(ref, 8), nullptr);
  const int plain = 0;
  EXPECT_EQ(own_address(direct_ref(&plain), sizeof plain), reinterpret_cast<const std::byte*>(&plain));
}

TEST(FindSegment, StaysRightWhileOthersAllocate) {
  const Block mine = make(2 * page_size());
  const SegmentRef expected = *find_segment(mine.get(), 1);
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w) {
    writers.emplace_back([&, w] {
      std::vector<Block> held(100);
      for (std::size_t i = 0; i < 2000; ++i)
        held[i % held.size()] = make((1 + i % 5 + static_cast<std::size_t>(w)) * 4096);
      stop.store(true);
    });
  }
  std::size_t wrong = 0;
  while (!stop.load()) {
    const auto found = find_segment(mine.get() + page_size(), 8);
    wrong += !found || found->segment != expected.segment || found->offset != page_size();
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(wrong, 0u);
}

class RegisteredBuffer : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = static_cast<std::byte*>(std::aligned_alloc(page_size(), kBytes));
    for (std::size_t i = 0; i < kBytes; ++i) data_[i] = static_cast<std::byte>(i * 31);
  }
  void TearDown() override { std::free(data_); }
  bool intact() const {
    for (std::size_t i = 0; i < kBytes; ++i) {
      if (data_[i] != static_cast<std::byte>(i * 31)) return false;
    }
    return true;
  }
  static constexpr std::size_t kBytes = 1 << 20;
  std::byte* data_ = nullptr;
};

TEST_F(RegisteredBuffer, KeepsItsBytesThereAndBack) {
  register_buffer(data_, kBytes);
  EXPECT_TRUE(is_registered(data_, kBytes));
  EXPECT_TRUE(intact());
  const Mapping view = peer_view(*find_segment(data_, kBytes), kBytes);
  EXPECT_EQ(std::memcmp(view.data(), data_, kBytes), 0);
  view.data()[5] = std::byte{99};
  EXPECT_EQ(data_[5], std::byte{99});
  data_[5] = static_cast<std::byte>(5 * 31);
  deregister_buffer(data_);
  EXPECT_FALSE(is_registered(data_, 1));
  EXPECT_TRUE(intact());
  view.data()[5] = std::byte{98};
  EXPECT_TRUE(intact());
}

TEST_F(RegisteredBuffer, RefusesWhatItCannotMove) {
  EXPECT_NE(error_of([&] { register_buffer(data_ + 1, kBytes); }).find("multiples of the page size"),
            std::string::npos);
  EXPECT_NE(error_of([&] { register_buffer(nullptr, kBytes); }).find("null or empty"), std::string::npos);
  for (const std::size_t bytes : {SIZE_MAX - page_size() + 1, std::size_t{1} << 63})
    EXPECT_NE(error_of([&] { register_buffer(data_, bytes); }).find("no process has"), std::string::npos);
  register_buffer(data_, kBytes);
  EXPECT_NE(error_of([&] { register_buffer(data_ + page_size(), page_size()); }).find("registered already"),
            std::string::npos);
  deregister_buffer(data_);
  EXPECT_NE(error_of([&] { deregister_buffer(data_); }).find("not the start of a registered buffer"),
            std::string::npos);

  void* read_only = ::mmap(nullptr, page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(error_of([&] { register_buffer(read_only, page_size()); }).find("not private anonymous"),
            std::string::npos);
  ::munmap(read_only, page_size());
  EXPECT_NE(error_of([&] { register_buffer(read_only, page_size()); }).find("nothing is mapped"),
            std::string::npos);
}

TEST(MakePrivate, TakesJustThesePagesAwayFromPeers) {
  const std::size_t page = page_size(), bytes = 4 * page;
  const Block block = make(bytes);
  std::memset(block.get(), 3, bytes);
  const SegmentRef before = *find_segment(block.get(), bytes);
  const Mapping revenant = peer_view(before, bytes);
  EXPECT_FALSE(is_private(block.get(), bytes));

  ASSERT_TRUE(make_private(block.get() + page + 5, 10).ok());
  EXPECT_TRUE(is_private(block.get() + page, 1));
  EXPECT_TRUE(is_private(block.get(), bytes));
  EXPECT_FALSE(is_private(block.get(), page));
  EXPECT_FALSE(is_private(block.get() + 2 * page, 2 * page));
  EXPECT_FALSE(find_segment(block.get(), 1)) << "no longer one memory";
  EXPECT_TRUE(all(block.get(), bytes, 3));
  std::memset(revenant.data(), 9, bytes);
  EXPECT_TRUE(all(block.get(), page, 9));  // Others may work there.
  EXPECT_TRUE(all(block.get() + page, page, 3));
  EXPECT_TRUE(all(block.get() + 2 * page, 2 * page, 9));

  // Once more, with its neighbours: what is private already is as it was left.
  std::memset(block.get() + page, 4, page);
  ASSERT_TRUE(make_private(block.get() + 1, 3 * page - 1).ok());
  std::memset(revenant.data(), 7, bytes);
  EXPECT_TRUE(all(block.get(), page, 9));
  EXPECT_TRUE(all(block.get() + page, page, 4));
  EXPECT_TRUE(all(block.get() + 2 * page, page, 9));
  EXPECT_TRUE(all(block.get() + 3 * page, page, 7));
}

// Calls of other communicators that were told of the block before go on in the rest of it.
TEST(MakePrivate, ThreadsThatWereToldOfTheBlockStillFindIt) {
  const std::size_t page = page_size();
  Block block = make(2 * page);
  const SegmentRef half = *find_segment(block.get() + page, page);
  ASSERT_TRUE(make_private(block.get(), page).ok());
  EXPECT_EQ(own_address(half, page), block.get() + page);
  EXPECT_EQ(own_address(half, page + 1), nullptr);
  block.reset();
  EXPECT_EQ(own_address(half, page), nullptr);
}

TEST(MakePrivate, IsForRegisteredMemoryOnly) {
  int local = 0;
  EXPECT_EQ(make_private(&local, sizeof local).code(), ErrorCode::invalid_argument);
  const Block block = make(page_size());
  EXPECT_EQ(make_private(block.get() + 1, page_size()).code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(find_segment(block.get(), page_size()));
}

TEST(MakePrivate, ItsBlockIsFreedForGood) {
  const std::size_t bytes = 3 * page_size(), mappings = our_mappings();
  std::byte* block = make(bytes).release();
  const std::uint64_t segment = find_segment(block, 1)->segment;
  ASSERT_TRUE(make_private(block + page_size(), 1).ok());
  lockstep::free(block);
  EXPECT_FALSE(is_private(block, bytes));
  EXPECT_LE(our_mappings(), mappings);
  const Block again = make(bytes);
  EXPECT_NE(find_segment(again.get(), bytes)->segment, segment);
}

TEST(MakePrivate, WhatIsFreedForGoodTakesNoMemoryThoughPeersHaveItMapped) {
  std::byte* block = make(2 * page_size()).release();
  const Mapping peers = peer_view(*find_segment(block, 1), 2 * page_size());
  ASSERT_TRUE(make_private(block, 1).ok());
  block[page_size()] = std::byte{1};
  EXPECT_EQ(peers.data()[page_size()], std::byte{1});
  lockstep::free(block);
  EXPECT_EQ(peers.data()[page_size()], std::byte{0}) << "its pages are there still";
}

TEST_F(RegisteredBuffer, IsGivenBackWholeAfterAPartWasMadePrivate) {
  register_buffer(data_, kBytes);
  ASSERT_TRUE(make_private(data_ + kBytes / 2, page_size()).ok());
  EXPECT_TRUE(intact());
  deregister_buffer(data_);
  EXPECT_TRUE(intact());
  register_buffer(data_, kBytes);
  EXPECT_TRUE(is_registered(data_, kBytes));
  deregister_buffer(data_);
}

// Rising numbers all over the block, behind the back of whoever takes one page after another from the peers.
TEST(MakePrivate, LosesNoWriteOfOtherThreads) {
  constexpr std::size_t kBytes = 64 << 20;
  const Block block = make(kBytes);
  const std::size_t pages = kBytes / page_size();
  const auto number = [&](std::size_t page) {
    return std::atomic_ref<std::uint64_t>(
        *reinterpret_cast<std::uint64_t*>(block.get() + page * page_size() + 64));
  };
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> rounds{0};
  std::size_t lost = 0;
  std::thread writer([&] {
    for (std::uint64_t round = 0; !stop.load(); rounds.store(++round)) {
      for (std::size_t page = 0; page < pages; ++page) {
        lost += number(page).load() != round;
        number(page).store(round + 1);
      }
    }
  });
  const std::size_t turns = 64, length = kBytes / turns;
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const std::uint64_t seen = rounds.load();
    while (rounds.load() == seen) std::this_thread::yield();  // Both are at work.
    EXPECT_TRUE(make_private(block.get() + turn * length, turn % 2 == 0 ? length : 1).ok());
  }
  stop.store(true);
  writer.join();
  EXPECT_EQ(lost, 0u);
}

}  // namespace
}  // namespace lockstep::internal
