// What the CUDA backend asks a driver about pointers: only what the driver's documentation has an answer to.
#include "lib/device/cuda/cuda_memory.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "lib/device/cuda/cuda_devices.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

// cuda.h at cuPointerGetAttributes: "The supported attributes are".
constexpr CUpointer_attribute kSupported[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                              CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                              CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                              CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                              CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                                              CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                              CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                              CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                              CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                              CU_POINTER_ATTRIBUTE_MAPPED,
                                              CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                              CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                              CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};

/// A reservation of two mappings, and an allocation of cudaMalloc, on device 3.
constexpr CUdeviceptr kReservation = 0x10'0000'0000, kMalloc = 0x20'0000'0000;
constexpr std::size_t kPiece = 2 << 20, kReserved = 16 * kPiece, kMalloced = 5000;

void answer(CUpointer_attribute what, void* where, CUdeviceptr at) {
  const bool malloced = at >= kMalloc;
  switch (what) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(where) = CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(where) = 3;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(where) = malloced ? kMalloc : kReservation;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(where) = malloced ? kMalloced : kReserved;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(where) = malloced ? 8 : 7;
      break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<unsigned*>(where) = malloced;
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<unsigned long long*>(where) = 0;
      break;
    default:
      *static_cast<unsigned*>(where) = 0;
  }
}

CUresult attributes(unsigned count, CUpointer_attribute* what, void** where, CUdeviceptr at) {
  for (unsigned i = 0; i < count; ++i) {
    if (std::find(std::begin(kSupported), std::end(kSupported), what[i]) == std::end(kSupported))
      return CUDA_ERROR_INVALID_VALUE;
    answer(what[i], where[i], at);
  }
  return CUDA_SUCCESS;
}

CUresult range(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr at) {
  *base = kReservation + (at - kReservation) / kPiece * kPiece;
  *bytes = kPiece;
  return CUDA_SUCCESS;
}

CudaDriver fake_driver() {
  CudaDriver driver{};
  driver.get_error_string = [](CUresult, const char**) { return CUDA_ERROR_INVALID_VALUE; };
  driver.pointer_attributes = attributes;
  driver.pointer_attribute = [](void*, CUpointer_attribute, CUdeviceptr) { return CUDA_ERROR_INVALID_VALUE; };
  driver.address_range = range;
  return driver;
}

void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

TEST(CudaMemory, IsLocatedByWhatEveryDriverTells) {
  const CudaDriver driver = fake_driver();
  const CudaMemory memory(driver);
  const Allocation malloced = must(memory.locate(pointer(kMalloc + 4999)));
  EXPECT_EQ(malloced.base, pointer(kMalloc));
  EXPECT_EQ(malloced.bytes, kMalloced);
  EXPECT_EQ(malloced.device, 3);
  EXPECT_FALSE(malloced.is_part);
}

TEST(CudaMemory, OfAReservationIsLocatedInItsMapping) {
  const CudaDriver driver = fake_driver();
  const CudaMemory memory(driver);
  const Allocation second = must(memory.locate(pointer(kReservation + kPiece + 5)));
  EXPECT_EQ(second.base, pointer(kReservation + kPiece));
  EXPECT_EQ(second.bytes, kPiece);
  EXPECT_TRUE(second.is_part);
  EXPECT_EQ(memory.export_memory(pointer(kReservation)).status().code(), ErrorCode::not_supported);
}

TEST(CudaMemory, WhoseBlockTheDriverDoesNotTellIsNotExportedBelowOne) {
  const CudaDriver driver = fake_driver();
  const CudaMemory memory(driver);
  EXPECT_EQ(memory.export_memory(pointer(kMalloc)).status().code(), ErrorCode::not_supported);
}

/// Of the fake: what a thread has, and the context of each device that is in use.
thread_local CUcontext current = nullptr;
int used_device = -1;
CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(std::uintptr_t{0x1000} + static_cast<unsigned>(device));
}

CudaDriver driver_of_contexts() {
  CudaDriver driver = fake_driver();
  driver.current_context = [](CUcontext* context) {
    *context = current;
    return CUDA_SUCCESS;
  };
  driver.set_context = [](CUcontext context) {
    current = context;
    return CUDA_SUCCESS;
  };
  driver.context_state = [](CUdevice device, unsigned*, int* active) {
    *active = device == used_device;
    return CUDA_SUCCESS;
  };
  driver.retain_context = [](CUcontext* context, CUdevice device) {
    *context = context_of(device);
    return CUDA_SUCCESS;
  };
  return driver;
}

TEST(AnyContext, IsLentToAThreadThatHasNoneFromADeviceInUse) {
  const CudaDriver driver = driver_of_contexts();
  CudaDevices devices(driver, 4);
  used_device = -1;
  EXPECT_FALSE(AnyContext(driver, devices).exists());
  used_device = 2;
  {
    const AnyContext lent(driver, devices);
    EXPECT_TRUE(lent.exists());
    EXPECT_EQ(current, context_of(2));
  }
  EXPECT_EQ(current, nullptr);
  current = context_of(3);
  EXPECT_TRUE(AnyContext(driver, devices).exists());
  EXPECT_EQ(current, context_of(3));
  current = nullptr;
}

}  // namespace
}  // namespace lockstep::internal
