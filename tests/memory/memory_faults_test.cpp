// Registered memory when the system refuses: no room for a mapping, no descriptor left.
#include <gtest/gtest.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lib/memory/descriptor_service.hpp"
#include "lib/memory/limits.hpp"
#include "lib/memory/mapping.hpp"
#include "lib/memory/segment.hpp"
#include "lib/net/reactor.hpp"
#include "lockstep/error.hpp"
#include "lockstep/memory.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/no_descriptors_left.hpp"
#include "tests/support/no_room.hpp"
#include "tests/support/refused_call.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::NoRoom;
using lockstep::testing::thrown_by;

template <typename Call>
ErrorCode code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::ok;
}

class MemoryWithoutRoom : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = static_cast<std::byte*>(std::aligned_alloc(page_size(), kBytes));
    for (std::size_t i = 0; i < kBytes; ++i) data_[i] = static_cast<std::byte>(i * 31);
  }
  void TearDown() override { std::free(data_); }
  static bool intact(const std::byte* data) {
    for (std::size_t i = 0; i < kBytes; ++i) {
      if (data[i] != static_cast<std::byte>(i * 31)) return false;
    }
    return true;
  }

  static constexpr std::size_t kBytes = 1 << 20;
  std::byte* data_ = nullptr;
};

TEST_F(MemoryWithoutRoom, ABufferThatCannotBeRegisteredIsAsItWas) {
  {
    const NoRoom none;
    EXPECT_EQ(code_of([&] { register_buffer(data_, kBytes); }), ErrorCode::out_of_memory);
  }
  EXPECT_FALSE(is_registered(data_, 1));
  EXPECT_TRUE(intact(data_));
  register_buffer(data_, kBytes);
  EXPECT_TRUE(intact(data_));
  deregister_buffer(data_);
}

TEST_F(MemoryWithoutRoom, ABufferThatCannotBeDeregisteredKeepsItsBytes) {
  register_buffer(data_, kBytes);
  {
    const NoRoom none;
    EXPECT_EQ(code_of([&] { deregister_buffer(data_); }), ErrorCode::out_of_memory);
  }
  EXPECT_TRUE(is_registered(data_, kBytes));
  EXPECT_TRUE(intact(data_));
  deregister_buffer(data_);
  EXPECT_TRUE(intact(data_));
}

TEST_F(MemoryWithoutRoom, ABufferThatCannotBeDeregisteredKeepsItsPrivatePages) {
  register_buffer(data_, kBytes);
  ASSERT_TRUE(make_private(data_, 1).ok());
  const std::byte before = std::exchange(data_[5], std::byte{99});  // Which only that page has.
  {
    const NoRoom none;
    EXPECT_EQ(code_of([&] { deregister_buffer(data_); }), ErrorCode::out_of_memory);
  }
  EXPECT_EQ(std::exchange(data_[5], before), std::byte{99});
  EXPECT_TRUE(intact(data_));
  deregister_buffer(data_);
  EXPECT_TRUE(intact(data_));
}

TEST_F(MemoryWithoutRoom, ASegmentThatCannotBeMadePrivateStays) {
  auto* block = static_cast<std::byte*>(lockstep::allocate(kBytes));
  std::memcpy(block, data_, kBytes);
  const auto before = find_segment(block, kBytes);
  {
    const NoRoom none;
    EXPECT_EQ(make_private(block, kBytes).code(), ErrorCode::out_of_memory);
  }
  EXPECT_TRUE(intact(block));
  EXPECT_EQ(find_segment(block, kBytes), before);
  EXPECT_FALSE(is_private(block, kBytes));
  EXPECT_TRUE(
      fetch_descriptors(*descriptor_service_name(), segment_key(before->segment), IfAbsent::fail, 20'000)
          .ok());
  lockstep::free(block);
}

TEST_F(MemoryWithoutRoom, ASegmentOfWhichAPageIsPrivateIsNoSegmentAgain) {
  auto* block = static_cast<std::byte*>(lockstep::allocate(kBytes));
  ASSERT_TRUE(make_private(block, 1).ok());
  {
    const NoRoom none;
    EXPECT_EQ(make_private(block, kBytes).code(), ErrorCode::out_of_memory);
  }
  EXPECT_FALSE(find_segment(block, kBytes));
  lockstep::free(block);
}

// By a signal that ends the process, if it is let come to that.
TEST(MemoryBeyondTheLimitOnFiles, IsRefused) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = thrown_by([&] { (void)lockstep::allocate(small.rlim_cur + 1); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
  EXPECT_NE(std::string(error.what()).find("ulimit -f"), std::string::npos) << error.what();
  lockstep::free(lockstep::allocate(small.rlim_cur));
  setrlimit(RLIMIT_FSIZE, &before);
}

TEST(MemoryUnderASeccompProfile, SharedMemoryThatIsForbiddenIsNamedWithTheWayOut) {
  for (const int error : {EPERM, EACCES, ENOSYS}) {
    testing::run_forked(1, [&](int) {
      ASSERT_TRUE(lockstep::testing::refuse_call(SYS_memfd_create, static_cast<unsigned>(error)));
      EXPECT_EQ(make_memory_fd("test", page_size()).status().message(),
                std::string("this process may make no shared memory (memfd_create: ") + std::strerror(error) +
                    "): let the container's seccomp profile allow memfd_create");
    });
  }
}

// To have the pages at once is advice: without it they are touched.
TEST(MemoryUnderASeccompProfile, IsPopulatedWithoutTheAdvice) {
  constexpr std::uint32_t kPopulateWrite = 23;
  for (const int error : {EPERM, EACCES, ENOSYS}) {
    testing::run_forked(1, [&](int) {
      ASSERT_TRUE(
          lockstep::testing::refuse_call(SYS_madvise, static_cast<unsigned>(error), {{2, kPopulateWrite}}));
      auto memory = Mapping::map_private(4 * page_size());
      ASSERT_TRUE(memory.ok()) << memory.status().message();
      unsigned char present[4] = {};
      ASSERT_EQ(mincore(memory->data(), 4 * page_size(), present), 0);
      for (const unsigned char page : present) EXPECT_EQ(page & 1, 1);
    });
  }
}

TEST(MemoryWithoutDescriptors, IsNamed) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP();
  lockstep::free(lockstep::allocate(1));
  Reactor::serving().run_there([] {});  // It has closed its ends of what was fetched before.
  const lockstep::testing::NoDescriptorsLeft none;
  EXPECT_EQ(code_of([] { (void)lockstep::allocate(3 * page_size()); }), ErrorCode::system);
}

// One number is for the connection, and at most one more for its other end, which is here too; without that
// one the service has its reserve.
TEST(MemoryWithoutDescriptors, AFetchHandsOverAllOrSaysWhatIsMissing) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP();
  const std::string service = *descriptor_service_name();
  std::vector<Fd> bells;
  for (std::size_t i = 0; i < kMaxDescriptorsPerKey; ++i) bells.emplace_back(::eventfd(0, EFD_CLOEXEC));
  ASSERT_TRUE(offer_descriptors("test/bells", std::move(bells)).ok());
  for (const int left : {1, 2, 3}) {
    lockstep::testing::NoDescriptorsLeft none;
    for (int i = 0; i < left; ++i) none.give_back_one();
    const auto fetched = fetch_descriptors(service, "test/bells", IfAbsent::fail, 20'000);
    ASSERT_FALSE(fetched.ok()) << fetched.value().size() << " of " << kMaxDescriptorsPerKey;
    EXPECT_EQ(fetched.status().code(), ErrorCode::system);
    EXPECT_NE(fetched.status().message().find("ulimit -n"), std::string::npos) << fetched.status().message();
  }
  EXPECT_EQ(withdraw_descriptors("test/bells").size(), kMaxDescriptorsPerKey);
}

}  // namespace
}  // namespace lockstep::internal
