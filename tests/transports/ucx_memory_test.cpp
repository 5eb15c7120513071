// Registered memory in a process that uses UCX, which puts functions of its own in the place of the C
// library's for memory.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ucm/api/ucm.h>

#include <atomic>
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
  auto fd = duplicate_offered(segment_key(segment->segment));
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

/// Whether UCX was told that some memory is no longer what it was.
struct Watched {
  const std::byte* begin;
  std::size_t bytes;
  std::atomic<bool> told{false};

  static void hear(ucm_event_type_t, ucm_event_t* event, void* watched) {
    auto& self = *static_cast<Watched*>(watched);
    const auto* const from = static_cast<const std::byte*>(event->vm_unmapped.address);
    if (from <= self.begin && from + event->vm_unmapped.size >= self.begin + self.bytes) self.told = true;
  }
};

// It keeps registrations of what it has sent, by address: a device would go on with pages that are gone.
TEST_F(MemoryBesideUcx, IsForgottenByUcxWhereItIsReplaced) {
  void* const library = dlopen("libucm.so.0", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto watch =
      reinterpret_cast<decltype(&ucm_set_event_handler)>(dlsym(library, "ucm_set_event_handler"));
  const auto unwatch =
      reinterpret_cast<decltype(&ucm_unset_event_handler)>(dlsym(library, "ucm_unset_event_handler"));
  ASSERT_TRUE(watch != nullptr && unwatch != nullptr);
  Watched watched{data_, kBufferBytes};
  ASSERT_EQ(watch(UCM_EVENT_VM_UNMAPPED, 0, &Watched::hear, &watched), UCS_OK);
  register_buffer(data_, kBufferBytes);
  EXPECT_TRUE(watched.told.exchange(false));
  EXPECT_TRUE(make_private(data_, kBufferBytes).ok());
  EXPECT_TRUE(watched.told.exchange(false));
  deregister_buffer(data_);
  EXPECT_TRUE(watched.told);
  unwatch(UCM_EVENT_VM_UNMAPPED, &Watched::hear, &watched);
  dlclose(library);
}

}  // namespace
}  // namespace lockstep::internal
