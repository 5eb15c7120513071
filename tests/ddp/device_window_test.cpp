// The buckets of a DeviceReducer are a window: streams reduce them where they lie, without staging, and what
// compression sends and receives is one, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/device/host/host_backend.hpp"
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
constexpr unsigned char kByte = 0x40;
constexpr float kNumber = 0x1.808080p1f;  // Of four such bytes.

/// A reducer of one parameter, whose gradients are summed.
class OneBucket {
 public:
  OneBucket(DeviceRank& self, DeviceCompression compression)
      : self_(self), value_(static_cast<float*>(allocate_device(kBytes, self.device()))) {
    const Parameter parameter{"weights", DataType::f32, {kCount}, value_, nullptr};
    DeviceReducerOptions options;
    options.average = false;
    options.compression = compression;
    reducer_.emplace(self.host, self.communicator, std::span(&parameter, 1), options);
    static_cast<void>(self.recorder.take());
  }
  ~OneBucket() {
    reducer_.reset();
    free_device(value_);
  }

  /// Of gradients that consist of kNumber, or of zeros.
  std::vector<float> sum(bool of_numbers) {
    Backend& backend = *must(internal::device_backend());
    must(backend.fill(reducer_->gradient(0), of_numbers ? kByte : 0, kBytes, self_.stream));
    reducer_->mark_ready(0, self_.stream);
    reducer_->wait(self_.stream);
    std::vector<float> sum(kCount);
    must(backend.copy(sum.data(), reducer_->gradient(0), kBytes, self_.stream));
    self_.synchronize();
    return sum;
  }

 private:
  DeviceRank& self_;
  float* const value_;
  std::optional<DeviceReducer> reducer_;
};

TEST(DeviceWindow, ABucketIsReducedWhereItLies) {
  const bool take_turns = kMode == "stream_sync" && testing::take_time_slices(2);
  testing::run_on_devices(2, kMode.c_str(), [=](DeviceRank& self) {
    OneBucket bucket(self, DeviceCompression::none);
    EXPECT_EQ(bucket.sum(self.rank() == 1), std::vector<float>(kCount, kNumber));
    testing::expect_one_reduction(self, kBytes, take_turns);
  });
}

/// Where they are staged; the copy of the result blocks in the driver, as a training that logs its loss does.
TEST(DeviceWindow, BucketsAreAddedUpBetweenHosts) {
  testing::run_on_hosts(4, kMode.c_str(), [](DeviceRank& self) {
    OneBucket bucket(self, DeviceCompression::none);
    for (int step = 0; step < 3; ++step)
      EXPECT_EQ(bucket.sum(self.rank() == step), std::vector<float>(kCount, kNumber));
    EXPECT_EQ(internal::HostBackend::hangs(), 0);
  });
}

TEST(DeviceWindow, CompressedBucketsAreAddedUp) {
  for (const int ranks : {2, 3}) {  // Which exchange whole buckets, or chunks.
    testing::run_on_devices(ranks, kMode.c_str(), [](DeviceRank& self) {
      for (const auto compression : {DeviceCompression::bf16, DeviceCompression::i8}) {
        OneBucket bucket(self, compression);
        for (int step = 0; step < 3; ++step) {
          const std::vector<float> sum = bucket.sum(true);
          const auto [least, most] = std::minmax_element(sum.begin(), sum.end());
          const float right = kNumber * static_cast<float>(self.size());
          EXPECT_NEAR(*least, right, right / 50);
          EXPECT_NEAR(*most, right, right / 50);
        }
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
