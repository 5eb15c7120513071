// The public face of devices, on the host backend: programs without CUDA's headers.
#include <gtest/gtest.h>

#include <vector>

#include "lockstep/device_runtime.hpp"
#include "lockstep/error.hpp"

namespace lockstep {
namespace {

TEST(DeviceRuntime, DevicesAreCountedDescribedAndSelected) {
  ASSERT_GE(device::count(), 2);
  const device::Properties first = device::properties(0);
  EXPECT_EQ(first.backend, "host");
  EXPECT_FALSE(first.name.empty());
  EXPECT_GT(first.memory_bytes, 0u);
  device::select(1);
  EXPECT_EQ(device::selected(), 1);
  device::select(0);
  EXPECT_THROW(device::select(device::count()), Error);
  EXPECT_THROW(static_cast<void>(device::properties(-1)), Error);
}

TEST(DeviceRuntime, StreamsRunInOrderAndEventsTellTheTime) {
  constexpr std::size_t kBytes = 1 << 20;
  const Stream first = device::create_stream(), second = device::create_stream();
  const device::Event start = device::create_timed_event(), end = device::create_timed_event();
  const device::Event ready = device::create_event();
  auto* const a = static_cast<std::byte*>(device::allocate_pinned(kBytes));
  std::vector<std::byte> b(kBytes);
  device::record(start, first);
  device::fill(a, 7, kBytes, first);
  device::record(ready, first);
  device::record(end, first);
  device::wait(second, ready);
  device::copy(b.data(), a, kBytes, second);
  device::synchronize(second);
  device::synchronize(first);
  EXPECT_TRUE(device::is_idle(first));
  EXPECT_EQ(b, std::vector<std::byte>(kBytes, std::byte{7}));
  EXPECT_GT(device::elapsed_us(start, end), 0);
  EXPECT_THROW(static_cast<void>(device::elapsed_us(device::create_timed_event(), end)), Error);
  device::free_pinned(a);
  for (const device::Event event : {start, end, ready}) device::destroy_event(event);
  for (const Stream stream : {first, second}) device::destroy_stream(stream);
  EXPECT_THROW(device::synchronize(first), Error);
}

}  // namespace
}  // namespace lockstep
