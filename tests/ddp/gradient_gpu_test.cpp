// The passes of a DeviceReducer over its buckets, on a GPU, give what the host backend gives, bit for bit.
// Skipped where there is no GPU.
#include <gtest/gtest.h>
#ifdef LOCKSTEP_CUDA
#include <cuda_runtime_api.h>
#endif

#include <cmath>
#include <limits>
#include <vector>

#include "ddp/device/gradient_kernels.hpp"
#include "lib/device/cuda/cuda_backend.hpp"
#include "lib/device/host/host_backend.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

constexpr std::size_t kCount = 1'000'003;

/// What `pass` makes of a bucket of f32 on a backend's first device.
template <typename Pass>
std::vector<float> after(Backend& backend, const std::vector<float>& before, const Pass& pass) {
  const DeviceScope scope(backend, 0);
  GradientKernels kernels(backend, 0, 1);
  auto* const data = static_cast<std::byte*>(must(backend.allocate(0, before.size() * sizeof(float))));
  const DeviceStream stream = must(backend.create_stream());
  must(backend.copy(data, before.data(), before.size() * sizeof(float), stream));
  BucketPlan plan;
  plan.buckets.push_back({DataType::f32, {{0, 0, 0, before.size()}}, before.size()});
  pass(kernels, plan, data, stream);
  std::vector<float> result(before.size());
  must(backend.copy(result.data(), data, result.size() * sizeof(float), stream));
  must(backend.synchronize(stream));
  must(backend.destroy_stream(stream));
  must(backend.free(data));
  return result;
}

class GradientGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<Backend*> opened = open_cuda_backend();
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    cuda_ = *opened;
    for (std::size_t i = 0; i < kCount; ++i) values_.push_back(std::sin(static_cast<float>(i)) * 3);
  }
  Backend* cuda_ = nullptr;
  HostBackend host_;
  std::vector<float> values_;
};

TEST_F(GradientGpu, ScrubFindsTheFirstAndLeavesZero) {
  values_[700'001] = std::numeric_limits<float>::quiet_NaN();
  values_[900'000] = -std::numeric_limits<float>::infinity();
  std::uint64_t first[2] = {};
  int side = 0;
  const auto pass = [&](GradientKernels& kernels, const BucketPlan& plan, std::byte* data,
                        DeviceStream stream) {
    kernels.scrub(0, plan.buckets[0], data, stream);
    first[side++] = kernels.found(stream)[0];
  };
  EXPECT_EQ(after(*cuda_, values_, pass), after(host_, values_, pass));
  EXPECT_EQ(first[0], 700'001u);
  EXPECT_EQ(first[1], 700'001u);
}

#ifdef LOCKSTEP_CUDA
TEST_F(GradientGpu, AnErrorThatTheProgramLeftIsNoneOfAPass) {
  const auto pass = [](GradientKernels& kernels, const BucketPlan& plan, std::byte* data,
                       DeviceStream stream) {
    EXPECT_NE(::cudaSetDevice(-1), cudaSuccess);
    kernels.scrub(0, plan.buckets[0], data, stream);
  };
  EXPECT_EQ(after(*cuda_, values_, pass), values_);
  static_cast<void>(::cudaGetLastError());
}
#endif

TEST_F(GradientGpu, ClipHasTheBitsOfTheHost) {
  const auto pass = [&](GradientKernels& kernels, const BucketPlan& plan, std::byte* data,
                        DeviceStream stream) {
    std::byte* const place[] = {data};
    kernels.clip(plan, place, 1.5, nullptr, stream);
  };
  EXPECT_EQ(after(*cuda_, values_, pass), after(host_, values_, pass));
}

}  // namespace
}  // namespace lockstep::internal
