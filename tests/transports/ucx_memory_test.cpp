// Registered memory in a process that uses UCX, which puts functions of its own in the place of the C
// library's for memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "lib/memory/descriptor_service.hpp"
#include "lib/memory/mapping.hpp"
#include "lib/memory/segment.hpp"
#include "lockstep/memory.hpp"
#include "transports/ucx/ucx_transport.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

class MemoryBesideUcx : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(context_.ok()) << context_.status().message();
    ASSERT_NE(data_, nullptr);
    std::memset(data_, 7, kBufferBytes);
  }
  ~MemoryBesideUcx() override { std::free(data_); }

  const Result<std::shared_ptr<UcxContext>> context_ = open_ucx(2);
  std::byte* const data_ = static_cast<std::byte*>(std::aligned_alloc(page_size(), kBufferBytes));
};

TEST_F(MemoryBesideUcx, IsSharedAndPrivateAgainInItsPlace) {
  register_buffer(data_, kBufferBytes);
  const auto segment = find_segment(data_, kBufferBytes);
  ASSERT_TRUE(segment);
  auto fd = duplicate_offered(segment_key(segment->segment, segment->generation));
  ASSERT_TRUE(fd.ok()) << fd.status().message();
  auto of_peer = Mapping::map(*fd, kBufferBytes);
  ASSERT_TRUE(of_peer.ok()) << of_peer.status().message();
  data_[kBufferBytes - 1] = std::byte{8};
  EXPECT_EQ(of_peer->data()[kBufferBytes - 1], std::byte{8}) << "peers see what is written here";
  ASSERT_TRUE(make_private(data_, 1).ok());
  of_peer->data()[0] = std::byte{9};
  EXPECT_EQ(data_[0], std::byte{7}) << "what peers write to pages that were taken does not come here";
  deregister_buffer(data_);
  of_peer->data()[kBufferBytes - 1] = std::byte{9};
  EXPECT_EQ(data_[0], std::byte{7});
  EXPECT_EQ(data_[kBufferBytes - 1], std::byte{8});
}

}  // namespace
}  // namespace lockstep::internal
