// The codes of CUDA's errors, for which no device is needed.
#include "lib/device/cuda/cuda_errors.hpp"

#include <gtest/gtest.h>

namespace lockstep::internal {
namespace {

TEST(CudaErrors, AreFailuresOfTheDeviceAndSayWhat) {
  for (const cudaError_t error : {cudaErrorIllegalAddress, cudaErrorInvalidResourceHandle,
                                  cudaErrorInvalidValue, cudaErrorLaunchFailure}) {
    const Status status = cuda_status(error, "copying");
    EXPECT_EQ(status.code(), ErrorCode::device_failed) << status.message();
    EXPECT_EQ(status.message(), std::string("copying: ") + ::cudaGetErrorString(error));
  }
  EXPECT_TRUE(cuda_status(cudaSuccess, "copying").ok());
}

TEST(CudaErrors, ThatCallersActOnHaveTheirOwnCodes) {
  EXPECT_EQ(cuda_status(cudaErrorMemoryAllocation, "").code(), ErrorCode::out_of_memory);
  EXPECT_EQ(cuda_status(cudaErrorNotSupported, "").code(), ErrorCode::not_supported);
  EXPECT_EQ(cuda_status(cudaErrorInvalidDevice, "").code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace lockstep::internal
