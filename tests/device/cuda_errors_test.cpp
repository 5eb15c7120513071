// The codes of CUDA's errors, for which no device is needed.
#include "lib/reduce/cuda/cuda_errors.hpp"

#include <gtest/gtest.h>

#include "lib/reduce/cuda/load_kernel.hpp"

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

TEST(CudaErrors, AContextThatFindsNoMemorySaysWhatToSet) {
  const Status status = context_status(cuda_status(cudaErrorMemoryAllocation, "selecting device 0"));
  EXPECT_EQ(status.code(), ErrorCode::out_of_memory);
  EXPECT_NE(status.message().find("CUDA_DEVICE_MAX_CONNECTIONS"), std::string::npos) << status.message();
  const Status other = context_status(cuda_status(cudaErrorInvalidDevice, "selecting device 9"));
  EXPECT_EQ(other.message(), cuda_status(cudaErrorInvalidDevice, "selecting device 9").message());
}

TEST(CudaErrors, OnlyAMissingKernelIsAFaultOfTheBuild) {
  for (const cudaError_t error : {cudaErrorNoKernelImageForDevice, cudaErrorInvalidDeviceFunction})
    EXPECT_EQ(cuda::loaded(error).code(), ErrorCode::not_supported);
  EXPECT_EQ(cuda::loaded(cudaErrorMemoryAllocation).code(), ErrorCode::out_of_memory);
  EXPECT_EQ(cuda::loaded(cudaErrorIllegalAddress).code(), ErrorCode::device_failed);
  EXPECT_TRUE(cuda::loaded(cudaSuccess).ok());
}

}  // namespace
}  // namespace lockstep::internal
