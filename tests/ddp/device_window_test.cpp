// The buckets of a DeviceReducer are a window: streams reduce them where they lie, without staging.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/ddp/device_reducer.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::Backend;
using internal::testing::must;
using testing::DeviceRank;

const std::string kMode = testing::DeviceRun(testing::test_run("stream_sync")).mode;
constexpr std::size_t kCount = 1 << 19;  // More than packets carry.
constexpr std::size_t kBytes = kCount * sizeof(float);

TEST(DeviceWindow, ABucketIsReducedWhereItLies) {
  const bool take_turns = kMode == "stream_sync" && testing::take_time_slices(2);
  testing::run_on_devices(2, kMode.c_str(), [=](DeviceRank& self) {
    Backend& backend = *must(internal::device_backend());
    float* const value = static_cast<float*>(allocate_device(kBytes, self.device()));
    const Parameter parameter{"weights", DataType::f32, {kCount}, value, nullptr};
    DeviceReducerOptions options;
    options.average = false;
    std::optional<DeviceReducer> reducer;
    reducer.emplace(self.host, self.communicator, std::span(&parameter, 1), options);
    static_cast<void>(self.recorder.take());
    constexpr unsigned char kByte = 0x40;  // Of each byte of 3.0039, which the other rank adds zero to.
    must(backend.fill(reducer->gradient(0), self.rank() == 1 ? kByte : 0, kBytes, self.stream));
    reducer->mark_ready(0, self.stream);
    reducer->wait(self.stream);
    std::vector<unsigned char> sum(kBytes);
    must(backend.copy(sum.data(), reducer->gradient(0), kBytes, self.stream));
    self.synchronize();
    EXPECT_EQ(std::count(sum.begin(), sum.end(), kByte), static_cast<std::ptrdiff_t>(kBytes));
    testing::expect_one_reduction(self, kBytes, take_turns);
    reducer.reset();
    free_device(value);
  });
}

}  // namespace
}  // namespace lockstep
